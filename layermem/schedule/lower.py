"""Lowers a plan to instructions: residencies wherever a buffer must be held, copies for each OFFLOAD.

    uses of a buffer in the order     w . . r . . . . . . r . r        w writes, r reads
    decisions of its gaps              KEEP    OFFLOAD     KEEP  RECOMPUTE
    residencies                       |#######)        |#####)         on the device; between them one in the host arena
    instructions                             ^offload ^prefetch

An offload is issued right after the use before its gap, a prefetch some time before the use after it.  `copy_lead`
determines how long the bytes stay allocated for a copy: in the modelled time of the ops each offload runs as early and
each prefetch as late as its queue permits, and the residency covers that fraction of the copy.
(Native code computes when each residency begins and ends: native/planning/liveness/layout.h, through layout.py.)
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from layermem.graph.ops import Graph, Op
from layermem.planning.plan import Plan, ops_in_order
from layermem.schedule.ir import D2H, H2D, OFFLOAD, PREFETCH, Instruction, Residency
from layermem.schedule.layout import Layout, OrderResidency, may_overlay


@dataclass(frozen=True)
class Lowered:
    """A schedule whose residencies have no offsets yet, and whose instructions do not wait for each other."""

    graph: Graph
    plan: Plan
    instructions: list[Instruction]
    residencies: list[Residency]


def lower(layout: Layout, plan: Plan) -> Lowered:
    """Instructions and residencies of `plan`, to be placed (place.py)."""
    emitter = _Emitter(layout, plan)
    return Lowered(layout.graph, plan, emitter.emit(), emitter.finished_residencies())


UNKNOWN = -1  # end of a residency that has not ended


class _Emitter:
    """Emits instructions position by position; the ends of residencies follow when all positions have their ticks.

    Each position of the order becomes its prefetches, then its op, then its offloads.
    """

    def __init__(self, layout: Layout, plan: Plan):
        self.buffers, self.overlays = layout.graph.buffers, plan.overlays
        self.ops = ops_in_order(layout.graph, plan.order)
        self.instructions: list[Instruction] = []
        self.residencies: list[Residency] = []
        self.span_of: dict[int, OrderResidency] = {}  # spans of residencies on the device
        self.current: dict[str, int] = {}  # buffer -> the residency that ops use now
        self.prefetched: dict[tuple[str, int], int] = {}  # (buffer, position that waits for it) -> residency
        self.host: dict[str, int] = {}  # buffer -> its newest residency in the host arena
        self.first_tick: list[int] = []  # first tick of each position
        self.op_tick: list[int] = []
        self.overlaid: set[int] = set()  # residencies whose bytes another one took over
        self.comm_releases = layout.comm_releases(plan)
        self.released_at: dict[int, int] = {}  # workspace of a comm op -> position
        spans = layout.residencies(plan)
        self.beginning = {(span.buffer, span.begin): span for span in spans}
        self.offloads: dict[int, list[OrderResidency]] = defaultdict(list)  # by position
        self.prefetches: dict[int, list[OrderResidency]] = defaultdict(list)
        for span in spans:
            if span.offloads:
                self.offloads[span.end - 1].append(span)
        for span in sorted(spans, key=lambda span: span.begin):
            if span.prefetch_at is not None:
                self.prefetches[span.prefetch_at].append(span)

    def emit(self) -> list[Instruction]:
        seen: set[str] = set()
        for position, op in enumerate(self.ops):
            self.first_tick.append(len(self.instructions))
            for span in self.prefetches[position]:
                self._prefetch(span)
            for buffer in op.touches:
                if (buffer, position) in self.beginning:
                    self.current[buffer] = self._begin_or_fetched(self.beginning[buffer, position])
            self.op_tick.append(len(self.instructions))
            self._op(op, position, is_recompute=op.name in seen)
            seen.add(op.name)
            for span in self.offloads[position]:
                self._offload(span)
        self.first_tick.append(len(self.instructions))
        return self.instructions

    def finished_residencies(self) -> list[Residency]:
        last: dict[int, Instruction] = {}
        for instruction in self.instructions:
            for residencies in (instruction.reads, instruction.writes):
                for rid in residencies:
                    last[rid] = instruction
        return [r if r.end != UNKNOWN else r.ending(self._end(r, last[r.id])) for r in self.residencies]

    # -- instructions ------------------------------------------------------------------------------------------

    def _prefetch(self, span: OrderResidency) -> None:
        source = self._in_host_arena(span.buffer, fresh=False)
        self.prefetched[span.buffer, span.begin] = target = self._begin(span)
        self._copy(H2D, PREFETCH, span.buffer, source, target)

    def _offload(self, span: OrderResidency) -> None:
        target = self._in_host_arena(span.buffer, fresh=True)
        self._copy(D2H, OFFLOAD, span.buffer, self.current[span.buffer], target)

    def _copy(self, stream: str, kind: str, buffer: str, source: int, target: int) -> None:
        tick = len(self.instructions)
        self.instructions.append(Instruction(tick, stream, kind, buffer, None, {}, (source,), (target,)))

    def _op(self, op: Op, position: int, is_recompute: bool) -> None:
        tick = len(self.instructions)
        for overlay in op.overlays:
            if overlay.kind in self.overlays:
                self._overlay(self.current[overlay.out], self.current[overlay.over], position)
        roles = {role: self.current[buffer] for role, buffer in op.roles.items()}
        reads = tuple(self.current[b] for b in (*op.reads, *op.updates))
        writes = tuple(self.current[b] for b in (*op.updates, *op.writes))
        if op.workspace_bytes:
            roles["workspace"] = self._workspace(op, position, tick)
            writes = (*writes, roles["workspace"])
        if op.host_workspace_bytes:
            what, nbytes = f"{op.name}.host_workspace", op.host_workspace_bytes
            roles["host_workspace"] = self._residency(what, tick, nbytes, end=tick + 1, host=True)
            writes = (*writes, roles["host_workspace"])
        self.instructions.append(
            Instruction(tick, op.stream, op.kind, op.name, op, roles, reads, writes, is_recompute=is_recompute)
        )

    # -- residencies -------------------------------------------------------------------------------------------

    def _residency(self, buffer: str, begin: int, nbytes: int, *, end: int = UNKNOWN, host: bool = False) -> int:
        rid = len(self.residencies)
        self.residencies.append(Residency(rid, buffer, begin, end, nbytes, host=host))
        return rid

    def _workspace(self, op: Op, position: int, tick: int) -> int:
        end = UNKNOWN if position in self.comm_releases else tick + 1
        rid = self._residency(f"{op.name}.workspace", tick, op.workspace_bytes, end=end)
        if end == UNKNOWN:
            self.released_at[rid] = self.comm_releases[position]
        return rid

    def _begin(self, span: OrderResidency) -> int:
        begin = 0 if span.whole_step else len(self.instructions)
        rid = self._residency(span.buffer, begin, self.buffers[span.buffer].nbytes)
        self.span_of[rid] = span
        return rid

    def _begin_or_fetched(self, span: OrderResidency) -> int:
        """The residency that begins at an op, or the one that a prefetch began for it."""
        return self._begin(span) if span.prefetch_at is None else self.prefetched[span.buffer, span.begin]

    def _in_host_arena(self, buffer: str, *, fresh: bool) -> int:
        """The residency of `buffer` in the host arena: a persistent buffer has a single one, others have one per
        offload."""
        persistent = self.buffers[buffer].persistent
        if buffer not in self.host or (fresh and not persistent):
            begin = 0 if persistent else len(self.instructions)
            self.host[buffer] = self._residency(buffer, begin, self.buffers[buffer].nbytes, host=True)
        return self.host[buffer]

    def _overlay(self, out: int, over: int, position: int) -> None:
        """Let `out` take the bytes of `over`, if `out` begins here and `over` ends, and neither is overlaid yet."""
        new, old = self.span_of[out], self.span_of[over]
        free = self.residencies[out].over is None and over not in self.overlaid
        if free and new.begin == position == old.end - 1 and may_overlay(new, old):
            self.overlaid.add(over)
            self.residencies[out] = self.residencies[out]._replace(over=over)

    def _end(self, r: Residency, last: Instruction) -> int:
        """The tick from which the bytes may be reused; `last` is the last instruction that accesses them."""
        if r.id in self.released_at:
            return max(last.tick + 1, self.first_tick[min(self.released_at[r.id], len(self.ops))])
        if r.host:
            if self.buffers[r.buffer].persistent:
                return len(self.instructions)
            if last.kind == PREFETCH:  # complete when the op that waits for it runs
                return self.op_tick[self.span_of[last.writes[0]].begin] + 1
            return last.tick + 1
        span = self.span_of[r.id]
        if span.whole_step:
            return len(self.instructions)
        if span.release > span.end:  # not before its copy ends, in the modelled time
            return max(last.tick + 1, self.first_tick[min(span.release, len(self.ops))])
        return last.tick + 1
