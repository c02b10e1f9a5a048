"""Places residencies: assigns offsets so that no two that live at one tick share a byte.

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
    step_seconds: float | None = None,
) -> Schedule:
    """Return `lowered` with offsets, and with the waits that make it safe to share bytes across streams.

    persistent    offsets of the persistent buffers; all others lie above them
    target_bytes  a peak that ends the search (a budget); 0 requests the smallest
    step_seconds  limit of the search (native/planning/placement/step_budget.h)
    """
    if step_seconds is None:
        limited, unlimited = SETTINGS.place_limited_step_seconds, SETTINGS.place_step_seconds
        step_seconds = limited if lowered.plan.copy_limit_bytes else unlimited
    device = assign_offsets(lowered.residencies, persistent, target_bytes=target_bytes, step_seconds=step_seconds)
    host = assign_offsets(lowered.residencies, persistent, host=True, step_seconds=step_seconds)
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
    bound_bytes  lower bound of the peak of any placement
    blocks, seconds   number of placed blocks (a chain of overlays is one), and duration of the search
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
    step_seconds: float = SETTINGS.place_step_seconds,
) -> ArenaOffsets:
    """Return offsets for the residencies on the device, or for those in the host arena."""
    fixed, floor = (persistent.host, persistent.host_bytes) if host else (persistent.device, persistent.device_bytes)
    block_of: dict[int, int] = {}  # residency -> block
    blocks: list[list[int]] = []  # of each its begin, end, size and fixed offset, or -1
    for r in residencies:
        if r.host != host:
            continue
        if r.over is not None:
            block_of[r.id] = block_of[r.over]
            block = blocks[block_of[r.over]]
            block[:2] = min(block[0], r.begin), max(block[1], r.end)
            continue
        block_of[r.id] = len(blocks)
        blocks.append([r.begin, r.end, r.nbytes, fixed.get(r.buffer, -1)])
    begin, end, size, offset = np.array(blocks, np.int64).reshape(-1, 4).T.copy()
    placement = _native.place(
        begin, end, size, align=ALIGN, step_seconds=step_seconds, floor=floor, fixed=offset, target=target_bytes
    )
    offsets = placement.offsets.tolist()
    return ArenaOffsets(
        {rid: offsets[block] for rid, block in block_of.items()},
        max(floor, placement.height),
        max(floor, placement.bound),
        len(blocks),
        placement.seconds,
    )
