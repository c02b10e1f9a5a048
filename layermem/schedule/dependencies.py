"""The `after` edges: what each instruction waits for on other streams, so that sharing bytes is safe.

    tick 1  compute  writes a@0
    tick 2  d2h      reads  a@0                 after 1: the bytes that it reads are written there
    tick 5  compute  writes b@0                 after 2: the copy must have read them before they are overwritten

Instructions of one stream run in order, so they need no edge; nor does one that another edge implies.  Of those that
are launched together (joined.py), the first one waits for all that they wait for, and others wait for the last one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from layermem.schedule.ir import COMPUTE, Instruction, Residency
from layermem.schedule.joined import joined
from layermem.utils.units import aligned

Clock = dict[str, int]  # stream -> tick of its last instruction that is complete


class _LastAccesses:
    """The last tick at which each stream touched each byte: segments [start_i, start_i+1) in address order."""

    def __init__(self) -> None:
        self.start = [0]
        self.ticks: list[Clock] = [{}]

    def _cut(self, offset: int) -> int:
        i = bisect_left(self.start, offset)
        if i < len(self.start) and self.start[i] == offset:
            return i
        self.start.insert(i, offset)
        self.ticks.insert(i, self.ticks[i - 1])
        return i

    def touch(self, begin: int, end: int, stream: str, tick: int, writes: bool) -> Clock:
        """Note the access, and return the last ones before it, per stream."""
        first, last = self._cut(begin), self._cut(end)
        before: Clock = {}
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


def last_accesses(instructions: Sequence[Instruction]) -> dict[int, dict[str, int]]:
    """By residency: the tick of the last instruction of each stream that touches it."""
    touched: dict[int, dict[str, int]] = {}
    for instruction in instructions:
        for rid in (*instruction.reads, *instruction.writes):
            touched.setdefault(rid, {})[instruction.stream] = instruction.tick
    return touched


def with_dependencies(instructions: list[Instruction], residencies: Sequence[Residency]) -> list[Instruction]:
    """Each instruction with the ticks of other streams that it waits for: the last ones that touched bytes that it
    writes, or wrote bytes that it reads, unless its stream or another edge has waited for them already."""
    if all(instruction.stream == COMPUTE for instruction in instructions):
        return instructions
    accesses = {host: _LastAccesses() for host in (False, True)}
    writer: dict[int, int] = {}  # residency -> tick
    clocks: list[Clock] = []  # per instruction: what is complete once it is
    last_of: dict[int, int] = {}  # tick -> the last one of those that are launched together: they end at once
    newest: dict[str, Clock] = {}  # stream -> clock of its last instruction
    waiting = []
    for group in joined(instructions):
        first, *others = group
        required: set[int] = set()
        for instruction in group:
            required |= {writer[rid] for rid in instruction.reads if rid in writer}
            for rid in dict.fromkeys((*instruction.reads, *instruction.writes)):
                r, writes = residencies[rid], rid in instruction.writes
                if r.nbytes:
                    end = r.offset + aligned(r.nbytes)
                    before = accesses[r.host].touch(r.offset, end, instruction.stream, instruction.tick, writes)
                    required.update(before.values() if writes else ())
        clock = dict(newest.get(first.stream, {}))
        after = []
        for tick in sorted(
            {last_of.get(tick, tick) for tick in required}, reverse=True
        ):  # the latest first, since it may have waited for the others
            stream = instructions[tick].stream
            if tick > clock.get(stream, -1) and stream != first.stream:
                after.append(tick)
                for other, when in clocks[tick].items():
                    clock[other] = max(clock.get(other, -1), when)
        clock[first.stream] = group[-1].tick
        last_of |= {each.tick: group[-1].tick for each in group}
        clocks += [clock] * len(group)
        newest[first.stream] = clock
        for instruction in group:
            writer.update(dict.fromkeys(instruction.writes, instruction.tick))
        waiting += [first._replace(after=tuple(sorted(after))) if after else first, *others]
    return waiting
