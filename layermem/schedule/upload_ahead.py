"""Places input layers' workspaces where bytes stay free at the end of a step, for the next batch.

    tick             0 1 2 3 4 5 6 7 8 9
    workspace       |#|         . . . . . . |     the next batch is copied to its bytes from tick 5 on, from which
    others in them  | |########|            |     nothing else lies in them, and is there at tick 0

The workspace of a Feed is in use only at its own tick, so it may have any offset whose bytes are free before that tick:
it gets the one whose bytes are free earliest.  The arena does not grow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from layermem.ops import Feed
from layermem.schedule.ir import Instruction, Residency
from layermem.utils.units import aligned


def feed_workspaces(instructions: Sequence[Instruction]) -> dict[str, int]:
    """The residency of the workspace of each input layer that has one, by layer."""
    return {
        each.op.record.layer: each.roles["workspace"]
        for each in instructions
        if each.op is not None and isinstance(each.op.record, Feed) and "workspace" in each.roles
    }


def place_workspaces(
    instructions: Sequence[Instruction], placed: list[Residency], floor: int, peak_bytes: int
) -> list[Residency]:
    """Return `placed` with workspaces of input layers where bytes from `floor` to `peak_bytes` are free earliest."""
    for rid in feed_workspaces(instructions).values():
        workspace = placed[rid]
        others = _by_offset(r for r in placed if not r.host and r.id != rid)
        low, high = workspace.end, free_from(workspace, placed, len(instructions))
        while low < high:
            middle = (low + high) // 2
            offset = _offset(workspace, others, middle, floor, peak_bytes)
            if offset is None:
                low = middle + 1
            else:
                placed[rid], high = workspace.placed_at(offset), middle
    return placed


def free_from(workspace: Residency, placed: Sequence[Residency], ticks: int) -> int:
    """The tick from which no other residency has bytes of `workspace`, until the end of the step and, in the next step,
    until its tick; the number of ticks if there is none."""
    begin, end = workspace.offset, workspace.offset + aligned(workspace.nbytes)
    inside = (
        ticks if r.begin < workspace.end else r.end
        for r in placed
        if not r.host and r.id != workspace.id and r.offset < end and begin < r.offset + aligned(r.nbytes)
    )
    return max(inside, default=workspace.end)


class _Others(NamedTuple):
    """Residencies by rising offset: their bytes [begin, end), and their ticks [begin_tick, end_tick)."""

    begin: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    begin_tick: npt.NDArray[np.int64]
    end_tick: npt.NDArray[np.int64]


def _by_offset(residencies: Iterable[Residency]) -> _Others:
    rows = sorted((r.offset, r.offset + aligned(r.nbytes), r.begin, r.end) for r in residencies)
    return _Others(*np.array(rows, np.int64).reshape(-1, 4).T)


def _offset(workspace: Residency, others: _Others, tick: int, floor: int, peak_bytes: int) -> int | None:
    """The lowest offset from `floor` on that is free from `tick` on, and up to the end of `workspace`."""
    nbytes, meets = aligned(workspace.nbytes), (others.end_tick > tick) | (others.begin_tick < workspace.end)
    # The end of the taken bytes up to each colliding residency: a gap lies between it and the next one's begin.
    taken = np.maximum.accumulate(np.concatenate(([floor], others.end[meets])))
    gaps = np.flatnonzero(taken[:-1] + nbytes <= others.begin[meets])
    if len(gaps):
        return int(taken[gaps[0]])
    return int(taken[-1]) if taken[-1] + nbytes <= peak_bytes else None
