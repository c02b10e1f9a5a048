"""Offsets for residencies, and the `after` edges that make sharing bytes across streams safe.

Parameters and other buffers that outlive a step sit at offsets decided elsewhere (`Homes`), since the train and test
schedules of a solver share them.  A chain of overlays is one block.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from layermem import _native
from layermem.graph.ops import Graph
from layermem.planning.base import Plan
from layermem.schedule.ir import COMPUTE, Instruction, Residency, Schedule
from layermem.schedule.lower import Lowered
from layermem.utils.units import ALIGN, aligned

SEARCH_SECONDS = 1.0


@dataclass(frozen=True)
class PersistentOffsets:
    """Offsets of the buffers that outlive a step, on the device or in the host arena, and where they end."""

    device: Mapping[str, int] = field(default_factory=dict)
    device_end: int = 0
    host: Mapping[str, int] = field(default_factory=dict)
    host_end: int = 0


def place(
    graph: Graph,
    plan: Plan,
    lowered: Lowered,
    *,
    persistent: PersistentOffsets = PersistentOffsets(),
    target: int = 0,
    seconds: float = SEARCH_SECONDS,
) -> Schedule:
    """`lowered` with offsets.

    homes    where persistent buffers live; all others lie above them
    target   a height in bytes that is good enough to stop the search (a budget); 0 asks for the least
    """
    device = offsets(lowered.residencies, persistent, target=target, seconds=seconds)
    host = offsets(lowered.residencies, persistent, host=True, seconds=seconds)
    placed = [r._replace(offset=(host if r.host else device).offset[r.id]) for r in lowered.residencies]
    instructions = _after(lowered.instructions, placed)
    return Schedule(graph, plan, tuple(instructions), tuple(placed), device.height, host.height, device.bound)


@dataclass(frozen=True)
class Offsets:
    """Where the residencies of one arena lie.

    height   highest byte that one reaches, the homes included
    bound    no placement is lower
    blocks, seconds   how many were placed, and how long it took
    """

    offset: Mapping[int, int]
    height: int
    bound: int
    allocations: int
    seconds: float


def offsets(
    residencies: Sequence[Residency],
    persistent: PersistentOffsets = PersistentOffsets(),
    *,
    host: bool = False,
    target: int = 0,
    seconds: float = SEARCH_SECONDS,
) -> Offsets:
    """Offsets for the residencies on the device, or on the host."""
    fixed, floor = (persistent.host, persistent.host_end) if host else (persistent.device, persistent.device_end)
    head: dict[int, int] = {}  # residency -> block
    begin: list[int] = []
    end: list[int] = []
    size: list[int] = []
    at: list[int] = []
    for r in residencies:
        if r.host != host:
            continue
        if r.over is not None:
            block = head[r.id] = head[r.over]
            begin[block], end[block] = min(begin[block], r.begin), max(end[block], r.end)
            continue
        head[r.id] = len(size)
        begin.append(r.begin)
        end.append(r.end)
        size.append(r.nbytes)
        at.append(fixed.get(r.buffer, -1))
    arrays = [np.array(values, np.int64) for values in (begin, end, size)]
    placement = _native.place(
        *arrays, align=ALIGN, time_limit=seconds, floor=floor, fixed=np.array(at, np.int64), target=target
    )
    found = placement.offsets.tolist()
    return Offsets(
        {rid: found[block] for rid, block in head.items()}, max(floor, placement.height), max(floor, placement.bound),
        len(size), placement.seconds,
    )  # fmt: skip


# -- what a row must wait for ----------------------------------------------------------------------------------


class _Tenants:
    """Who touched each byte last, stream by stream: segments [start_i, start_i+1) in address order."""

    def __init__(self) -> None:
        self.start = [0]
        self.ticks: list[dict[str, int]] = [{}]

    def _cut(self, offset: int) -> int:
        i = bisect_left(self.start, offset)
        if i < len(self.start) and self.start[i] == offset:
            return i
        self.start.insert(i, offset)
        self.ticks.insert(i, self.ticks[i - 1])
        return i

    def touch(self, begin: int, end: int, stream: str, tick: int, writes: bool) -> dict[str, int]:
        """Note the access and return the last accesses before it, per stream."""
        first, last = self._cut(begin), self._cut(end)
        before: dict[str, int] = {}
        for ticks in self.ticks[first:last]:
            for other, when in ticks.items():
                before[other] = max(before.get(other, -1), when)
        if writes:  # all earlier accesses are ordered before this one, so it alone stands for them
            self.start[first + 1 : last] = []
            self.ticks[first:last] = [{stream: tick}]
        else:
            for i in range(first, last):
                self.ticks[i] = {**self.ticks[i], stream: tick}
        return before


def _after(instructions: list[Instruction], residencies: list[Residency]) -> list[Instruction]:
    """Every row waits for the last rows of other streams that touched bytes it writes, or wrote bytes it reads; what
    its stream or the rows that it waits for have waited for already is left out."""
    if all(instruction.stream == COMPUTE for instruction in instructions):
        return instructions
    tenants = {host: _Tenants() for host in (False, True)}
    writer: dict[int, Instruction] = {}
    clocks: list[dict[str, int]] = []  # per row: stream -> the last tick that is complete once the row is
    newest: dict[str, dict[str, int]] = {}  # stream -> clock of its last row
    found = []
    for instruction in instructions:
        waits = {writer[rid].tick for rid in instruction.reads if rid in writer}
        for rid in dict.fromkeys((*instruction.reads, *instruction.writes)):
            r = residencies[rid]
            if r.nbytes:
                span = r.offset, r.offset + aligned(r.nbytes)
                before = tenants[r.host].touch(*span, instruction.stream, instruction.tick, rid in instruction.writes)
                waits.update(before.values() if rid in instruction.writes else ())
        clock = dict(newest.get(instruction.stream, {}))
        after = []
        for tick in sorted(waits, reverse=True):  # the latest first, since it may have waited for the others
            if tick > clock.get(instructions[tick].stream, -1) and instructions[tick].stream != instruction.stream:
                after.append(tick)
                for stream, when in clocks[tick].items():
                    clock[stream] = max(clock.get(stream, -1), when)
        clock[instruction.stream] = instruction.tick
        clocks.append(clock)
        newest[instruction.stream] = clock
        writer.update(dict.fromkeys(instruction.writes, instruction))
        found.append(instruction._replace(after=tuple(sorted(after))) if after else instruction)
    return found
