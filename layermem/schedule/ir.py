"""A schedule: rows in order, on three streams, over residencies with offsets.

tick       index of a row; intervals of ticks are half-open, [begin, end)
residency  one stay of a buffer at one offset, on the device or in the host arena; a buffer that comes back may
           come back elsewhere.  It ends where its bytes may be given away: after its last reader, or where the
           copy that carries it off is done.
after      rows of other streams that must be complete before this row starts; rows of one stream run in order
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from layermem.graph.ops import Graph, Op
from layermem.planning.base import Plan
from layermem.utils.units import aligned

COMPUTE, D2H, H2D = "compute", "d2h", "h2d"
STREAMS = (COMPUTE, D2H, H2D)


class Residency(NamedTuple):
    """`offset` and `nbytes` in bytes; `over` is the residency whose bytes this one takes over in place."""

    id: int
    buffer: str
    begin: int
    end: int
    nbytes: int
    offset: int = -1
    host: bool = False
    over: int | None = None


class Instruction(NamedTuple):
    """One launch or copy.  `op` is None for a copy; `roles` maps an op's roles (and "workspace") to residencies."""

    tick: int
    stream: str
    kind: str  # forward, backward, update, offload, prefetch
    what: str  # op name, or buffer of a copy
    op: Op | None
    roles: dict[str, int]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    after: tuple[int, ...] = ()
    is_recompute: bool = False  # a replay


@dataclass(frozen=True)
class Schedule:
    graph: Graph
    plan: Plan
    instructions: tuple[Instruction, ...]
    residencies: tuple[Residency, ...]
    peak_bytes: int  # bytes of device arena, parameters included
    host_peak_bytes: int  # bytes of host arena
    max_live_bytes: int  # most bytes in use at one tick: no placement has a lower peak

    @property
    def fragmentation_bytes(self) -> int:
        """Bytes that placement wastes; 0 is optimal."""
        return self.peak_bytes - self.max_live_bytes

    @cached_property
    def persistent_bytes(self) -> int:
        return sum(aligned(b.nbytes) for b in self.graph.persistent())

    def live_at(self, tick: int) -> list[Residency]:
        """Device residencies in use at `tick`, largest first; one of each overlay pair."""
        live = [r for r in self.residencies if not r.host and r.begin <= tick < r.end]
        taken = {r.over for r in live}
        return sorted((r for r in live if r.id not in taken), key=lambda r: -r.nbytes)

    @cached_property
    def peak_tick(self) -> int:
        """The first tick at which most bytes are in use."""
        change = [0] * (len(self.instructions) + 1)
        for first, end, nbytes in allocations(self.residencies):
            change[first] += nbytes
            change[end] -= nbytes
        best, at, total = -1, 0, 0
        for tick, delta in enumerate(change[:-1]):
            total += delta
            if total > best:
                best, at = total, tick
        return at


def allocations(residencies: tuple[Residency, ...]) -> list[tuple[int, int, int]]:
    """(begin, end, aligned bytes) of every device allocation: chains of overlays count once."""
    head: dict[int, int] = {}
    spans: dict[int, list[int]] = {}
    for r in residencies:
        if r.host:
            continue
        first = head[r.id] = head[r.over] if r.over is not None else r.id
        span = spans.setdefault(first, [r.begin, r.end, aligned(r.nbytes)])
        span[0], span[1] = min(span[0], r.begin), max(span[1], r.end)
    return [(begin, end, nbytes) for begin, end, nbytes in spans.values()]
