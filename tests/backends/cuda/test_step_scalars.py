"""What changes from step to step: packed as kernels read it, uploaded once a step, and nothing else changes."""

from __future__ import annotations

import json
import math
import struct

import numpy as np
import pytest

from layermem.backends.cuda.support.step_scalars import pack_step_scalars
from layermem.ops import Tensor, Update
from tests.backends.cuda.harness import Memory, run_op
from tests.backends.cuda.on_fake_driver import run
from tests.backends.cuda.test_update import SETTINGS
from tests.emulator import fake_driver


def test_the_struct_has_the_values_of_the_context():
    context = {
        "seed": 2**40 + 7,
        "step": 3 * 2**32 + 5,
        "averaged": 2,
        "rate": 0.1,
        "iteration": 4,
        "loss_scale": 1024.0,
    }
    momenta = {"momentum": 0.9, "momentum2": 0.999}
    rate, correction, averaged, scale, *random = struct.unpack("dfifIII", pack_step_scalars({**context, **momenta}))
    assert rate == 0.1 and averaged == 2 and scale == 1024 and random == [7, 5, 3]
    assert correction == np.float32(math.sqrt(1 - 0.999**5) / (1 - 0.9**5))


def test_scalars_that_a_context_lacks_have_their_defaults():
    assert struct.unpack("dfifIII", pack_step_scalars({})) == (0.0, 1.0, -1, 1.0, 0, 0, 0)


def test_adam_counts_the_iterations_that_were_not_skipped():
    momenta = {"momentum": 0.9, "momentum2": 0.999}
    skipping, plain = {"iteration": 7, "skipped": 3}, {"iteration": 4}
    assert pack_step_scalars({**momenta, **skipping}) == pack_step_scalars({**momenta, **plain})


@pytest.mark.parametrize("momentum, momentum2", [(1.0, 0.999), (0.9, 2.0), (-3.0, 0.0)])
def test_momenta_that_adam_would_not_take_are_no_error_for_another_rule(momentum, momentum2):
    context = {"momentum": momentum, "momentum2": momentum2, "iteration": 10**6}
    assert struct.unpack_from("f", pack_step_scalars(context), 8) == (0.0,)


@pytest.mark.parametrize("rate, lr_mult", [(0.1, 0.3), (1 / 3, 7.0), (0.01, 0.1), (1e-30, 1e-12)])
def test_the_rate_of_a_parameter_is_rounded_once(rate, lr_mult, rng):
    memory = Memory()
    arrays = {"w0": np.zeros(9), "dw0": rng.standard_normal(9), "h0": np.zeros(9)}
    got = {role: memory.stored(array, np.float32) for role, array in arrays.items()}
    gradient = got["dw0"].copy()
    record = Update("SGD", "w", Tensor((9,)), lr_mult=lr_mult, decay_mult=0.0)
    run_op(record, "update", got, context={**SETTINGS, "rate": rate})
    np.testing.assert_array_equal(got["h0"], np.float32(rate * lr_mult) * gradient)


COUNTED = """
import json, sys, tempfile
from collections import Counter
from pathlib import Path
from layermem.backends.base import get_device
from layermem.backends.cuda.driver.context import pycuda
from layermem.backends.cuda.driver.graph import DriverLibrary
from layermem.backends.cuda.driver.step_scalars import StreamScalars
from layermem.interactive.solver import Solver
from tests.nets import NETS, solver_file

steps, entered, written = [], DriverLibrary.__call__, StreamScalars._write

def counted(self, name, *arguments):
    steps[-1][name] += 1
    entered(self, name, *arguments)

def counted_write(self, context):
    steps[-1]["written"] += 1
    written(self, context)

DriverLibrary.__call__, StreamScalars._write = counted, counted_write
net, rule, graph = sys.argv[1:]
fields = {"type": rule, "base_lr": 0.002, "lr_policy": "exp", "gamma": 0.9, "test_iter": None, "test_interval": None}
with tempfile.TemporaryDirectory() as folder:
    with Solver(solver_file(NETS[net], Path(folder), **fields), device=get_device("cuda", graph=bool(graph))) as solver:
        for _ in range(6):
            steps.append(Counter())
            solver.step(1)
        updates = sum("update" in op.name for op in solver.program.train.graph.ops)
print(json.dumps([updates, steps]))
"""


@pytest.mark.skipif(not fake_driver.pycuda_is_installed(), reason="PyCUDA is not installed")
@pytest.mark.parametrize("net, rule", [("dropout", "SGD"), ("chain", "Adam")])
def test_a_captured_step_is_launched_as_it_is(net, rule):
    """One launch and one small copy a step, however many parameters there are; no call writes to a node."""
    done = run(COUNTED, net, rule, "graph")
    assert done.returncode == 0, done.stderr
    updates, steps = json.loads(done.stdout)
    assert updates > 3
    assert all(step == {"cuGraphLaunch": 1, "written": 1} for step in steps[3:]), steps  # both graphs are there


@pytest.mark.skipif(not fake_driver.pycuda_is_installed(), reason="PyCUDA is not installed")
def test_without_capture_the_scalars_are_written_once_a_step_too():
    done = run(COUNTED, "chain", "SGD", "")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[1] == [{"written": 1}] * 6
