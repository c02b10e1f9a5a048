"""The `after` edges: instructions of other streams that each instruction waits for, so that sharing bytes is safe.

    tick 1  compute  writes a@0
    tick 2  d2h      reads  a@0                 after 1: the bytes that it reads are written there
    tick 5  compute  writes b@0                 after 2: the copy must have read them before they are overwritten

Instructions of one stream run in order without an edge, and an edge that others imply is left out.  If instructions are
launched together (joined.py), the first one waits for the edges of all of them, and others wait for the last one.
The search is native (native/planning/placement/waits.h).
"""

from __future__ import annotations

from collections.abc import Sequence

from layermem import _native
from layermem.schedule.ir import COMPUTE, STREAMS, Instruction, Residency
from layermem.schedule.joined import joined
from layermem.utils.units import aligned


def last_accesses(instructions: Sequence[Instruction]) -> dict[int, dict[str, int]]:
    """For each residency, the tick of the last instruction of each stream that accesses it."""
    touched: dict[int, dict[str, int]] = {}
    for instruction in instructions:
        for rid in (*instruction.reads, *instruction.writes):
            touched.setdefault(rid, {})[instruction.stream] = instruction.tick
    return touched


def with_dependencies(instructions: list[Instruction], residencies: Sequence[Residency]) -> list[Instruction]:
    """Return the instructions with the ticks of other streams that each waits for: the last ones that accessed bytes
    that it writes, or wrote bytes that it reads, unless its stream or another edge implies the wait."""
    if all(instruction.stream == COMPUTE for instruction in instructions):
        return instructions
    last = [group[-1].tick for group in joined(instructions) for _ in group]
    waits = _native.find_waits(
        [STREAMS.index(each.stream) for each in instructions],
        last,
        [each.reads for each in instructions],
        [each.writes for each in instructions],
        [(r.offset, r.offset + aligned(r.nbytes), r.host) for r in residencies],
    )
    waiting = [*instructions]
    for tick, after in waits:
        waiting[tick] = instructions[tick].waiting_for(tuple(after))
    return waiting
