"""A schedule: instructions in order, on four streams, over residencies with offsets.

    tick          0    1    2    3    4    5    6          index of an instruction
    compute      feed conv1      relu      conv2 ...       runs the ops
    comm                                                   runs ops of all ranks together (graph/sharing.py)
    d2h                     data                           copies to the host (offload)
    h2d                               data                 copies back (prefetch)
    residencies  |data-----------)         |data----       a buffer at one offset, begin <= tick < end

residency  is on the device or in the host arena; a prefetched buffer may come back at another offset.  It ends when its
           bytes may be used by another one: after its last reader, or when its copy is complete.
after      instructions of other streams that must be complete before this one starts; one stream runs in order
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from layermem.graph.ops import COMM as COMM
from layermem.graph.ops import COMPUTE as COMPUTE
from layermem.graph.ops import Graph, Op
from layermem.planning.plan import Plan
from layermem.utils.units import aligned

D2H, H2D = "d2h", "h2d"
STREAMS = (COMPUTE, D2H, H2D, COMM)
OFFLOAD, PREFETCH = "offload", "prefetch"  # kinds of copies, on D2H and on H2D


class Residency(NamedTuple):
    """`begin` and `end` in ticks, half-open; `offset` and `nbytes` in bytes; `over` is the id of the residency whose
    bytes this one takes over in place."""

    id: int
    buffer: str
    begin: int
    end: int
    nbytes: int
    offset: int = -1
    host: bool = False
    over: int | None = None

    def ending(self, tick: int) -> Residency:  # this and waiting_for() take a third of the time of _replace()
        return Residency(self.id, self.buffer, self.begin, tick, self.nbytes, self.offset, self.host, self.over)

    def placed_at(self, offset: int) -> Residency:
        return Residency(self.id, self.buffer, self.begin, self.end, self.nbytes, offset, self.host, self.over)


class Instruction(NamedTuple):
    """One launch or copy.  `op` is None for a copy; `roles` maps an op's roles (and "workspace", "host_workspace") to
    residencies, which `reads` and `writes` name by id too."""

    tick: int
    stream: str
    kind: str  # forward, backward, update; offload, prefetch
    what: str  # name of the op or of the copied buffer
    op: Op | None
    roles: dict[str, int]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    after: tuple[int, ...] = ()
    is_recompute: bool = False

    def waiting_for(self, after: tuple[int, ...]) -> Instruction:
        """This instruction with other instructions to wait for."""
        tick, stream, kind, what, op, roles, reads, writes, _, is_recompute = self
        return Instruction(tick, stream, kind, what, op, roles, reads, writes, after, is_recompute)


@dataclass(frozen=True, repr=False)
class Schedule:
    """peak_bytes      peak of the device arena, including persistent buffers
    host_peak_bytes  peak of the host arena
    max_live_bytes   most bytes in use at one tick: a lower bound of the peak
    """

    graph: Graph
    plan: Plan
    instructions: tuple[Instruction, ...]
    residencies: tuple[Residency, ...]
    peak_bytes: int
    host_peak_bytes: int
    max_live_bytes: int

    def __repr__(self) -> str:
        size = f"{len(self.instructions)} instructions, peak {self.peak_bytes:,} bytes"
        return f"<Schedule: {self.graph.name}, strategy {self.plan.strategy}, {size}>"

    @property
    def fragmentation_bytes(self) -> int:
        """Bytes of the peak above the peak live bytes; 0 is optimal."""
        return self.peak_bytes - self.max_live_bytes

    @cached_property
    def persistent_bytes(self) -> int:
        return sum(aligned(b.nbytes) for b in self.graph.persistent())

    def live_at(self, tick: int) -> list[Residency]:
        """Device residencies in use at `tick`, largest first; an overlay pair counts once."""
        live = [r for r in self.residencies if not r.host and r.begin <= tick < r.end]
        overlaid = {r.over for r in live}
        return sorted((r for r in live if r.id not in overlaid), key=lambda r: -r.nbytes)

    @cached_property
    def peak_tick(self) -> int:
        """The first tick with the most bytes in use."""
        change = [0] * (len(self.instructions) + 1)
        for begin, end, nbytes in allocations(self.residencies):
            change[begin] += nbytes
            change[end] -= nbytes
        best, peak_tick, live_bytes = -1, 0, 0
        for tick, delta in enumerate(change[:-1]):
            live_bytes += delta
            if live_bytes > best:
                best, peak_tick = live_bytes, tick
        return peak_tick


def used_streams(schedule: Schedule) -> tuple[str, ...]:
    """The streams of every schedule, and COMM if it has instructions."""
    communicates = any(each.stream == COMM for each in schedule.instructions)
    return STREAMS if communicates else tuple(stream for stream in STREAMS if stream != COMM)


def allocations(residencies: tuple[Residency, ...]) -> list[tuple[int, int, int]]:
    """(begin, end, aligned bytes) of every device allocation: a chain of overlays is one."""
    head: dict[int, int] = {}
    spans: dict[int, list[int]] = {}
    for r in residencies:
        if r.host:
            continue
        first = head[r.id] = head[r.over] if r.over is not None else r.id
        span = spans.setdefault(first, [r.begin, r.end, aligned(r.nbytes)])
        span[0], span[1] = min(span[0], r.begin), max(span[1], r.end)
    return [(begin, end, nbytes) for begin, end, nbytes in spans.values()]
