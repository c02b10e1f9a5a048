"""A program on a device: one arena, one host arena, an executor per schedule, and the buffers that outlive a step."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from layermem.backends.arena import Arena
from layermem.backends.base import Device, NextBatch
from layermem.backends.registry import StepContext
from layermem.graph.ops import Buffer
from layermem.runtime.executor import Executor
from layermem.schedule.program import Program
from layermem.utils.units import aligned


class Runner:
    """`context` is what ops read at run time: seed, step, rate, batch (arrays by layer name), results (outputs).

    spill    folder for the host arena, which is then a file
    poison   NaN in all bytes that hold nothing (slow; for tests)
    """

    def __init__(
        self, program: Program, device: Device, context: StepContext, *, spill: Path | None = None, poison: bool = False
    ):
        self.program, self.device, self.context = program, device, context
        context.setdefault("results", {})
        context.setdefault("batch", {})
        self.arena = device.arena(program.arena_bytes, poison=poison)
        self.host = device.host_arena(program.host_bytes, spill=spill, poison=poison)
        self.executors = [
            Executor(schedule, device, self.arena, self.host, context, poison=poison) for schedule in program.schedules
        ]
        self.persistent: dict[str, Buffer] = {
            b.name: b for schedule in program.schedules for b in schedule.graph.persistent()
        }
        for name, buffer in self.persistent.items():
            arena, offset = self._placement(name)
            arena.zero(offset, buffer.nbytes)

    @property
    def measured_peak_bytes(self) -> int:
        """Bytes from the start of the arena to the last one that was written so far, in whole units of alignment.

        It is read from the memory: what a kernel wrote behind the end of the arena counts as well."""
        return aligned(self.arena.touched_bytes())

    def run(self, index: int = 0, next_batch: NextBatch | None = None) -> dict[str, np.ndarray]:
        """Run one schedule; the outputs of its net by blob name.  `next_batch` fetches its next batch."""
        self.context["results"].clear()
        self.executors[index].run(next_batch)
        return dict(self.context["results"])

    def run_forward(self) -> dict[str, np.ndarray]:
        """Run the forward ops of the first schedule alone; the outputs of its net by blob name."""
        self.context["results"].clear()
        self.executors[0].run_forward()
        return dict(self.context["results"])

    def read(self, name: str) -> np.ndarray:
        """A copy of a persistent buffer, NCHW."""
        arena, offset = self._placement(name)
        tensor = self.persistent[name].tensor
        return arena.read(offset, tensor, self.device.dtype(tensor))

    def write(self, name: str, value: np.ndarray) -> None:
        """Set a persistent buffer from numbers in NCHW order, of any shape with the right count."""
        arena, offset = self._placement(name)
        tensor = self.persistent[name].tensor
        arena.write(offset, tensor, value, self.device.dtype(tensor))

    def _placement(self, name: str) -> tuple[Arena, int]:
        persistent = self.program.persistent
        return (
            (self.arena, persistent.device[name]) if name in persistent.device else (self.host, persistent.host[name])
        )
