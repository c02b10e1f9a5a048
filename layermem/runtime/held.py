"""Buffers that an op holds in the arena until the host reads them after a run."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from layermem.backends.arena import axes_of_caffe
from layermem.backends.narrow import BITS, widened
from layermem.runtime.runner import Runner

Array = npt.NDArray[Any]


class Held:
    """The buffers that op `name` of schedule number `index` reads; none if there is no such op."""

    def __init__(self, runner: Runner, index: int, name: str):
        self.runner = runner
        self.schedule = runner.program.schedules[index]
        holds = (i for i in self.schedule.instructions if i.what == name and i.op is not None)
        self._at = {i.op.roles[role]: r for i in holds if i.op is not None for role, r in i.roles.items()}

    def __contains__(self, buffer: object) -> bool:
        return buffer in self._at

    def read(self, buffer: str) -> Array:
        """The buffer in NCHW order: a view of the arena if the host can reach it and it is in fp32, otherwise a
        copy."""
        r = self.schedule.residencies[self._at[buffer]]
        tensor, device, arena = self.schedule.graph.buffers[buffer].tensor, self.runner.device, self.runner.arena
        if tensor.dtype in BITS:
            return widened(arena.read(r.offset, tensor, device.dtype(tensor)), tensor.dtype)
        if device.shares_host_memory:
            return axes_of_caffe(arena.view(r.offset, tensor, device.dtype(tensor)))
        return arena.read(r.offset, tensor, device.dtype(tensor))
