"""Place residencies: an offset for each, so that no two that live at one tick share a byte.

    bytes  peak  +---------------+ . . . . . .
                 |  conv1        |  pool1.diff      a chain of overlays is one block
                 +-------+-------+------------+
                 | data  | relu1              |
                 +-------+--------------------+     persistent buffers lie below, at given offsets
                 | conv1.w0   conv1.w1 ...    |
                 +----------------------------+ ticks ->

The search for offsets is native (native/planning/placement/).  Test nets and the training step of a solver share the
persistent buffers, so those offsets are decided for all of them at once (arena_planner.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from layermem import _native
from layermem.planning.settings import SETTINGS
from layermem.schedule.dependencies import with_dependencies
from layermem.schedule.ir import Residency, Schedule
from layermem.schedule.lower import Lowered
from layermem.schedule.program import PersistentOffsets
from layermem.schedule.upload_ahead import place_workspaces
from layermem.utils.units import ALIGN


def place(
    lowered: Lowered,
    *,
    persistent: PersistentOffsets = PersistentOffsets(),
    target_bytes: int = 0,
    seconds: float | None = None,
) -> Schedule:
    """`lowered` with offsets, and with the waits that make it safe to share bytes across streams.

    persistent    offsets of the persistent buffers; all others lie above them
    target_bytes  a peak that is good enough to stop the search (a budget); 0 asks for the least
    seconds       of search, in steps (native/planning/placement/step_budget.h)
    """
    if seconds is None:
        seconds = SETTINGS.place_limited_seconds if lowered.plan.copy_limit_bytes else SETTINGS.place_seconds
    device = assign_offsets(lowered.residencies, persistent, target_bytes=target_bytes, seconds=seconds)
    host = assign_offsets(lowered.residencies, persistent, host=True, seconds=seconds)
    placed = [r.placed_at((host if r.host else device).offset[r.id]) for r in lowered.residencies]
    placed = place_workspaces(lowered.instructions, placed, persistent.device_bytes, device.peak_bytes)
    instructions = with_dependencies(lowered.instructions, placed)
    return Schedule(
        lowered.graph,
        lowered.plan,
        tuple(instructions),
        tuple(placed),
        device.peak_bytes,
        host.peak_bytes,
        device.bound_bytes,
    )


@dataclass(frozen=True)
class ArenaOffsets:
    """Offsets of the residencies of one arena.

    offset       by id of the residency
    peak_bytes   end of the highest residency, or of the persistent buffers
    bound_bytes  no placement has a lower peak
    blocks, seconds   how many were placed (a chain of overlays is one), and how long it took
    """

    offset: Mapping[int, int]
    peak_bytes: int
    bound_bytes: int
    blocks: int
    seconds: float


def assign_offsets(
    residencies: Sequence[Residency],
    persistent: PersistentOffsets = PersistentOffsets(),
    *,
    host: bool = False,
    target_bytes: int = 0,
    seconds: float = SETTINGS.place_seconds,
) -> ArenaOffsets:
    """Offsets for the residencies on the device, or for those in the host arena."""
    fixed, floor = (persistent.host, persistent.host_bytes) if host else (persistent.device, persistent.device_bytes)
    block_of: dict[int, int] = {}  # residency -> block
    begin: list[int] = []
    end: list[int] = []
    size: list[int] = []
    fixed_offset: list[int] = []
    for r in residencies:
        if r.host != host:
            continue
        if r.over is not None:
            block = block_of[r.id] = block_of[r.over]
            begin[block], end[block] = min(begin[block], r.begin), max(end[block], r.end)
            continue
        block_of[r.id] = len(size)
        begin.append(r.begin)
        end.append(r.end)
        size.append(r.nbytes)
        fixed_offset.append(fixed.get(r.buffer, -1))
    placement = _native.place(
        np.array(begin, np.int64),
        np.array(end, np.int64),
        np.array(size, np.int64),
        align=ALIGN,
        time_limit=seconds,
        floor=floor,
        fixed=np.array(fixed_offset, np.int64),
        target=target_bytes,
    )
    offsets = placement.offsets.tolist()
    return ArenaOffsets(
        {rid: offsets[block] for rid, block in block_of.items()},
        max(floor, placement.height),
        max(floor, placement.bound),
        len(size),
        placement.seconds,
    )
