"""Runs a schedule: a loop over its instructions, each of which is bound to its bytes in advance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from layermem.backends.arena import POISON, Arena
from layermem.backends.base import Bound, Device, Memory, NextBatch, sequence
from layermem.backends.registry import StepContext
from layermem.backends.storage import bind_op
from layermem.errors import DeviceError
from layermem.graph.ops import FORWARD, Op
from layermem.schedule.dependencies import last_accesses
from layermem.schedule.ir import Instruction, Residency, Schedule
from layermem.schedule.joined import joined
from layermem.schedule.upload_ahead import feed_workspaces, free_from

GUARD_BYTES = 1024  # checked on either side of the bytes that an op writes


class Executor:
    """A schedule bound to a device, its arena, and the host arena of its offloads.

    poison   fill bytes with NaN as soon as their residency ends, so that a read of freed bytes shows, and check the
             bytes around everything that an op writes; on devices without streams, all instructions then run in
             order, including those on COMM
    timed    measure when each instruction begins and ends; `stopwatch` has the times
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
        timed: bool = False,
    ):
        self.schedule, self.device, self.arena, self.host = schedule, device, arena, host
        for r in schedule.residencies:
            size = host.nbytes if r.host else arena.nbytes
            if r.offset + r.nbytes > size:
                raise DeviceError(
                    f"the schedule has '{r.buffer}' up to byte {r.offset + r.nbytes:,} of an arena of {size:,}"
                )
        self._instructions = list(schedule.instructions)
        calls = [call for group in joined(self._instructions) for call in self._bind_group(group, context)]
        self._cancel = context["transport"].cancel if "transport" in context and not poison else None
        if poison:
            calls = [self._guard(instruction, call) for instruction, call in zip(schedule.instructions, calls)]
            self._poison(calls)
        self.stopwatch = device.stopwatch(len(calls)) if timed else None
        if self.stopwatch is not None:
            around = self.stopwatch.around
            calls = [around(each.tick, each.stream, call) for each, call in zip(schedule.instructions, calls)]
        self._bound = calls
        self._forward_calls: Sequence[Bound] | None = None
        self._parts: dict[tuple[int, int], Sequence[Bound]] = {}
        self.calls = device.order_streams(self._instructions, calls, self._cancel, self._free_from())

    def run(self, next_batch: NextBatch | None = None) -> None:
        self.device.run(self.calls, next_batch)

    def run_part(self, begin: int, end: int) -> None:
        """Run instructions begin .. end - 1; those before them are complete."""
        if (begin, end) not in self._parts:
            instructions = [
                each._replace(after=tuple(tick for tick in each.after if tick >= begin))
                for each in self._instructions[begin:end]
            ]
            self._parts[begin, end] = self.device.order_streams(instructions, self._bound[begin:end], self._cancel)
        self.device.run(self._parts[begin, end])

    def run_forward(self) -> None:
        """Run the schedule up to its last forward op, and after it only the copies that return persistent buffers to
        their offsets between steps."""
        if self._forward_calls is None:
            instructions = self._instructions
            forward = [i for i, each in enumerate(instructions) if each.op is not None and each.op.kind == FORWARD]
            end = max((i for i in forward if not instructions[i].is_recompute), default=-1)
            kept = {i for i in forward if i <= end} | {i for i, each in enumerate(instructions) if each.op is None}
            calls = [call if i in kept else _skip for i, call in enumerate(self._bound)]
            self._forward_calls = self.device.order_streams(instructions, calls, self._cancel)
        self.device.run(self._forward_calls)

    def _free_from(self) -> dict[str, int]:
        """For each input layer, the tick from which the bytes of its workspace are free for its next batch."""
        residencies, ticks = self.schedule.residencies, len(self._instructions)
        workspaces = feed_workspaces(self._instructions)
        free = {layer: free_from(residencies[rid], residencies, ticks) for layer, rid in workspaces.items()}
        return {layer: tick for layer, tick in free.items() if tick < ticks}

    def _bind_group(self, group: Sequence[Instruction], context: StepContext) -> list[Bound]:
        """Return the calls of instructions that are launched together: the first call does the work of all."""
        first, *others = group
        if not others:
            return [self._bind(first, context)]
        bindings = [(each.op, self._arrays(each, each.op)) for each in group if each.op is not None]
        return [self.device.bind_joined(bindings, context), *(_skip for _ in others)]

    def _bind(self, instruction: Instruction, context: StepContext) -> Bound:
        if instruction.op is None:
            target, source = (self.schedule.residencies[r] for r in (instruction.writes[0], instruction.reads[0]))
            in_file = self.host.is_file and self.device.shares_host_memory
            if in_file and target.host:
                return partial(self.host.store, target.offset, self._bytes(source))
            copy = self.device.bind_copy(self._bytes(target), self._bytes(source))
            return sequence([copy, partial(self.host.release, source.offset, source.nbytes)]) if in_file else copy
        return bind_op(self.device, instruction.op, self._arrays(instruction, instruction.op), context)

    def _arrays(self, instruction: Instruction, op: Op) -> dict[str, Memory]:
        residencies = self.schedule.residencies
        return {role: self._array(residencies[rid], role, op) for role, rid in instruction.roles.items()}

    def _bytes(self, r: Residency) -> Memory:
        return (self.host if r.host else self.arena).span(r.offset, r.nbytes)

    def _array(self, r: Residency, role: str, op: Op) -> Memory:
        if role in ("workspace", "host_workspace"):
            return self._bytes(r)
        buffer, items = self.schedule.graph.buffers[r.buffer], op.views.get(role)
        begin, tensor = 0, buffer.tensor
        if items is not None:
            (begin, _), tensor = items.span(buffer.nbytes), items.rows_of(tensor)
        return self.arena.view(r.offset + begin, tensor, self.device.dtype(tensor))

    def _guard(self, instruction: Instruction, call: Bound) -> Bound:
        """Return a call that also raises an error if it changed bytes just outside the residencies or views that it
        writes."""
        views = instruction.op.view_of if instruction.op is not None else {}
        written = sorted(
            (r.offset + begin, r.offset + end, r.buffer)
            for r in (self.schedule.residencies[rid] for rid in instruction.writes)
            if not r.host
            for begin, end in [views[r.buffer].span(r.nbytes) if r.buffer in views else (0, r.nbytes)]
        )
        watched = [
            (buffer, self.arena.span(begin, end - begin)) for begin, end, buffer in _outside(written, self.arena.nbytes)
        ]
        return self.device.bind_guard(call, instruction.what, watched)

    def _poison(self, calls: list[Bound]) -> None:
        """Overwrite each residency when it ends, except those that others overlay.

        On a device with streams this happens after the last access, which then waits for the accesses of other streams:
        the next user of the bytes waits for that access, but not necessarily for an instruction of a third stream at
        whose tick the residency ends."""
        inherited = {r.over for r in self.schedule.residencies if r.over is not None}
        accesses = last_accesses(self._instructions)
        for r in self.schedule.residencies:
            if r.id in inherited or r.end >= len(self._instructions) or r.id not in accesses:
                continue
            last = self._instructions[r.end - 1]
            if self.device.has_streams:
                ticks = accesses[r.id].values()
                last = self._instructions[max(ticks)]
                others = {tick for tick in ticks if tick != last.tick}
                self._instructions[last.tick] = last._replace(after=tuple(sorted({*last.after, *others})))
            fill = self.device.bind_fill(self._bytes(r), POISON, last.stream)
            calls[last.tick] = sequence([calls[last.tick], fill])


def _outside(written: Sequence[tuple[int, int, str]], nbytes: int) -> Iterator[tuple[int, int, str]]:
    """Yield up to GUARD_BYTES before and after each range of `written` (sorted), without bytes that are in a range."""
    reached = 0
    for index, (begin, end, buffer) in enumerate(written):
        if max(reached, begin - GUARD_BYTES) < begin:
            yield max(reached, begin - GUARD_BYTES), begin, buffer
        reached = max(reached, end)
        following = written[index + 1][0] if index + 1 < len(written) else nbytes
        if reached < min(following, reached + GUARD_BYTES):
            yield reached, min(following, reached + GUARD_BYTES), buffer


def _skip() -> None:
    """Stand for an instruction that does not run."""
