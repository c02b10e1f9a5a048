"""The measured peak is read from memory: ops that write outside of their bytes in the schedule are detected."""

import ctypes
from collections.abc import Mapping

import numpy as np
import pytest

from layermem.backends.base import Bound
from layermem.backends.cpu import CpuDevice
from layermem.backends.reference import ReferenceDevice
from layermem.errors import DeviceError
from layermem.graph.ops import Op
from layermem.interactive.solver import Solver
from tests.nets import solver_file

DEVICES = [ReferenceDevice, CpuDevice]


class WritingBeside:
    """A device with an op that writes `distance` bytes after the array of `role` in the arena."""

    op_name, role, distance = "loss.forward", "y0", 0

    def bind(self, op: Op, arrays: Mapping[str, np.ndarray], context) -> Bound:
        call = super().bind(op, arrays, context)
        if op.name != self.op_name:
            return call
        array = arrays[self.role]
        address = array.ctypes.data + array.nbytes + self.distance

        def overrun() -> None:
            call()
            ctypes.memmove(address, b"\1\2\3\4", 4)

        return overrun


def writing_beside(device, op_name, role, distance):
    return type("Faulty", (WritingBeside, device), {"op_name": op_name, "role": role, "distance": distance})()


def solver_on(device, tmp_path, **options):
    return Solver(solver_file("chain", tmp_path), device=device, strategy="liveness", **options)


@pytest.mark.parametrize("device", DEVICES)
def test_before_the_first_step_only_persistent_buffers_were_written(tmp_path, device):
    solver = solver_on(device(), tmp_path)
    offsets = solver.program.persistent.device
    end = max(offsets[name] + buffer.nbytes for name, buffer in solver.runner.persistent.items())
    assert end <= solver.runner.measured_peak_bytes < solver.program.arena_bytes
    solver.step(1)
    assert solver.runner.measured_peak_bytes == solver.program.arena_bytes


@pytest.mark.parametrize("device", DEVICES)
def test_an_op_that_writes_behind_the_arena_raises_the_measured_peak_above_the_predicted(tmp_path, device):
    distance = 0
    for _ in range(2):  # first to learn where the array lies, then with the distance to the end of the arena
        faulty = writing_beside(device, "loss.forward", "y0", distance)
        solver = solver_on(faulty, tmp_path)
        schedule = solver.program.train
        [loss] = [r for r in schedule.residencies if r.buffer == "loss"]
        distance = solver.program.arena_bytes - loss.offset - loss.nbytes
    solver.step(1)
    assert solver.runner.measured_peak_bytes == solver.program.arena_bytes + 256


@pytest.mark.parametrize("device", DEVICES)
def test_an_op_that_writes_beside_its_buffers_fails_in_a_poisoned_run(tmp_path, device):
    solver = solver_on(writing_beside(device, "loss.forward", "y0", 0), tmp_path, poison=True)
    with pytest.raises(DeviceError, match=r"^loss\.forward writes outside 'loss'$"):
        solver.step(1)
