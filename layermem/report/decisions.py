"""The decision of a schedule about each buffer between its first write and its last use, in one word.

    kept         it stays in the arena until backward or a recomputation reads it
    recomputed   its bytes are freed, and the op that wrote it runs again
    offloaded    it is copied to the host arena, and back before it is read again
    freed        its bytes are freed after its last reader in the forward pass; backward does not read it
    fused        there is no buffer: the blob lies between layers that run as one op

A buffer with several gaps may be in two classes; the more expensive one is reported: recomputed, offloaded, kept,
freed.  `in_place_of` is independent of it: the buffer whose bytes this one takes over when it is first written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from layermem.graph.ops import DATA, FORWARD, STASH, Op
from layermem.schedule.ir import OFFLOAD, Schedule

KEPT, RECOMPUTED, OFFLOADED, FREED, FUSED = "kept", "recomputed", "offloaded", "freed", "fused"


@dataclass(frozen=True)
class BufferDecision:
    """`decision` is one of the words above; `in_place_of` names the buffer that this one is written over."""

    decision: str
    nbytes: int
    in_place_of: str | None = None


def buffer_decisions(schedule: Schedule) -> Mapping[str, BufferDecision]:
    """The decision of every blob, stash and persistent buffer of the schedule's graph."""
    recomputed: set[str] = set()
    offloaded: set[str] = set()
    read_later: set[str] = set()  # buffers that an op after the forward pass reads
    over: dict[str, str | None] = {}  # for each buffer's first residency on the device: the buffer below
    for residency in schedule.residencies:
        if not residency.host and residency.buffer not in over:
            below = residency.over
            over[residency.buffer] = None if below is None else schedule.residencies[below].buffer
    for instruction in schedule.instructions:
        if instruction.op is None:
            if instruction.kind == OFFLOAD:
                offloaded.add(instruction.what)
        elif instruction.is_recompute:
            recomputed.update(instruction.op.writes)
            read_later.update(instruction.op.reads)
        elif instruction.op.kind != FORWARD:
            read_later.update((*instruction.op.reads, *instruction.op.updates))
    return {
        buffer.name: BufferDecision(
            RECOMPUTED
            if buffer.name in recomputed
            else OFFLOADED
            if buffer.name in offloaded
            else KEPT
            if buffer.persistent or buffer.name in read_later
            else FREED,
            buffer.nbytes,
            over.get(buffer.name),
        )
        for buffer in schedule.graph.buffers.values()
        if buffer.persistent or buffer.kind in (DATA, STASH)
    }


def forward_ops(schedule: Schedule) -> list[Op]:
    """The ops of layers in the forward pass, each once, in the order of the net."""
    return [op for op in schedule.graph.ops if op.kind == FORWARD and op.layers]
