"""Every net of `layermem examples` is planned and checked.  docs/benchmarks/planning.md has planning times."""

from functools import lru_cache
from pathlib import Path

import pytest

from layermem.api import build_net, job_of
from layermem.backends.base import get_device
from layermem.nets.catalog import WRITTEN_ON_REQUEST
from layermem.planning.costs import model_costs
from layermem.planning.job import Job
from layermem.report.plan_report import evaluate
from layermem.schedule.check import violations
from layermem.solver.jobs import StepOptions, net_job

DEVICE, COSTS = get_device("cpu"), model_costs("cpu")
NETS = sorted(Path("prototxt").glob("*/*train_val.prototxt"))
DEEP = ("lstm1000", *WRITTEN_ON_REQUEST)
OF_PARAMETERS = {"faster_rcnn"}  # most bytes are parameters, of one image, and no plan of `hybrid` moves those
SMALL = [path for path in NETS if path.parent.name not in DEEP]
SOLVERS = sorted(path for net in SMALL for path in net.parent.glob("*solver_dummy.prototxt"))


@lru_cache(maxsize=1)  # strategies of one net follow each other
def job_with_offload(path: Path) -> Job:
    return net_job(build_net(path), StepOptions(device=DEVICE, costs=COSTS)).with_host_budget("1TiB")


@pytest.mark.samples(4)
@pytest.mark.parametrize("path", SMALL, ids=str)
def test_every_net_is_planned_within_what_caffe_takes(path):
    is_planned_within_what_caffe_takes(path)


@pytest.mark.whole
@pytest.mark.parametrize("name", DEEP)
def test_so_are_those_of_a_thousand_steps_and_those_that_have_no_files(name, example_nets):
    is_planned_within_what_caffe_takes(example_nets / name / "train_val.prototxt")


def is_planned_within_what_caffe_takes(path):
    found = evaluate(net_job(build_net(path), StepOptions(device=DEVICE, costs=COSTS)))
    assert found.program.max_live_bytes <= found.peak_bytes <= 0.7 * found.job.baseline_bytes < found.job.bvlc_bytes


@pytest.mark.samples(13)
@pytest.mark.parametrize("strategy", ["hybrid", "sublinear", "recompute", "auto"])
@pytest.mark.parametrize("path", SMALL, ids=str)
def test_two_fifths_of_caffe_are_enough_for_every_net(path, strategy):
    found = evaluate(job_with_offload(path), strategy, "40%")
    assert found.peak_bytes <= found.budget_bytes or not found.feasible
    if path.parent.name in OF_PARAMETERS:
        assert found.feasible or found.minimum_bytes > 0.4 * found.job.baseline_bytes
    elif strategy in ("hybrid", "auto"):
        assert found.feasible
    assert not violations(found.program.train)


@pytest.mark.samples(6)
@pytest.mark.parametrize("path", SOLVERS, ids=str)
def test_every_solver_is_planned_with_its_test_nets(path):
    job = job_of(solver=path, device=DEVICE, costs=COSTS)
    assert evaluate(job).peak_bytes <= job.baseline_bytes
