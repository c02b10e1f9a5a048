"""Runs a schedule: a plain walk over its rows.  Every row was bound to its bytes beforehand."""

from __future__ import annotations

from layermem.backends.arena import POISON, Arena
from layermem.backends.base import Bound, Device, Memory, NextBatch, sequence
from layermem.backends.registry import StepContext
from layermem.schedule.ir import Instruction, Residency, Schedule


class Executor:
    """A schedule bound to a device, its arena, and the host arena of its offloads.

    poison   fill bytes with NaN as soon as their residency ends, so that a read of freed bytes shows
    """

    def __init__(
        self,
        schedule: Schedule,
        device: Device,
        arena: Arena,
        host: Arena,
        context: StepContext,
        *,
        poison: bool = False,
    ):
        self.schedule, self.device, self.arena, self.host = schedule, device, arena, host
        calls: list[Bound] = [self._bind(instruction, context) for instruction in schedule.instructions]
        self.bytes_in_use = 0  # highest byte of the arena that any bound row touches
        for r in schedule.residencies:
            if not r.host:
                self.bytes_in_use = max(self.bytes_in_use, r.offset + r.nbytes)
        if poison:
            self._poison(calls)
        self.calls = device.order_streams(schedule.instructions, calls)

    def run(self, next_batch: NextBatch | None = None) -> None:
        self.device.run(self.calls, next_batch)

    def _bind(self, instruction: Instruction, context: StepContext) -> Bound:
        if instruction.op is None:
            source, target = (
                self._bytes(self.schedule.residencies[r]) for r in (instruction.reads[0], instruction.writes[0])
            )
            return self.device.bind_copy(source, target)
        arrays = {role: self._array(self.schedule.residencies[rid], role) for role, rid in instruction.roles.items()}
        return self.device.bind(instruction.op, arrays, context)

    def _bytes(self, r: Residency) -> Memory:
        return (self.host if r.host else self.arena).span(r.offset, r.nbytes)

    def _array(self, r: Residency, role: str) -> Memory:
        if role == "workspace":
            return self._bytes(r)
        tensor = self.schedule.graph.buffers[r.buffer].tensor
        return self.arena.view(r.offset, tensor, self.device.dtype(tensor))

    def _poison(self, calls: list[Bound]) -> None:
        """After each row, overwrite what ended there; a block that lives on under another name is left alone."""
        inherited = {r.over for r in self.schedule.residencies if r.over is not None}
        ending: dict[int, list[Bound]] = {}
        for r in self.schedule.residencies:
            if r.id not in inherited and r.end < len(self.schedule.instructions):
                stream = self.schedule.instructions[r.end - 1].stream
                ending.setdefault(r.end - 1, []).append(self.device.bind_fill(self._bytes(r), POISON, stream))
        for tick, fills in ending.items():
            calls[tick] = sequence([calls[tick], *fills])
