"""Jobs from nets and solvers."""

import subprocess
import sys

import pytest

import layermem
from layermem.errors import InputError
from layermem.interactive.jobs import job_of

NET = "prototxt/digits/train_val.prototxt"
LOADED = """
import sys
from layermem.interactive.jobs import job_of
job_of({net!r}, batch=8)
print(*(name for name in ("PIL", "layermem.interactive.net", "layermem.solver.engine") if name in sys.modules))
"""


def test_a_job_loads_nothing_that_reads_images_or_runs_nets():
    net = "prototxt/vgg16/train_val.prototxt"  # its data is not there, and its shape is stated
    run = subprocess.run([sys.executable, "-c", LOADED.format(net=net)], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_a_net_that_runs_has_the_job_of_its_definition():
    net = layermem.Net(NET, batch=8)
    assert job_of(net).graphs == job_of(net.definition).graphs == job_of(NET, batch=8).graphs


def test_a_net_has_its_batch_already():
    with pytest.raises(InputError, match="has its batch already"):
        job_of(layermem.Net(NET, batch=8), batch=4)


def test_a_job_is_of_a_net_or_of_a_solver():
    with pytest.raises(InputError, match="not both"):
        job_of(NET, solver="prototxt/digits/solver.prototxt")
