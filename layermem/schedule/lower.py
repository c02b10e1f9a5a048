"""From a plan to rows: residencies for every stretch that must be held, copies where the plan says OFFLOAD.

    uses of a buffer in the order     w . . r . . . . . . r . r        w writes, r reads
    fates of its gaps                  KEEP    OFFLOAD     KEEP  DROP
    residencies                       |#######|        |#####|
    rows                                     ^offload ^prefetch

An offload is issued right after the use before its gap and a prefetch some time before the use after it.  `ahead`
decides how long the bytes stay beside the copy: the copies' queues are laid out in the modelled time of the ops, each
offload as early and each prefetch as late as its queue permits, and the residency covers that share of the copy.
(When each stretch begins and ends is counted by native code: planning/layout.h, asked through layout.py.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from layermem.graph.ops import Graph, Op
from layermem.plan.base import Plan, ops_in_order
from layermem.schedule.ir import COMPUTE, D2H, H2D, Residency, Row
from layermem.schedule.layout import Layout, Stay, may_overlay


@dataclass(frozen=True)
class Lowered:
    """Rows whose residencies have no offsets yet."""

    rows: list[Row]
    residencies: list[Residency]


def lower(layout: Layout, plan: Plan) -> Lowered:
    """Rows and residencies of `plan`, to be placed (place.py)."""
    return _Emitter(layout.graph, plan, ops_in_order(layout.graph, plan.order), layout.stays(plan)).emit()


class _Emitter:
    """Numbers rows and residencies once every stay is known."""

    def __init__(self, graph: Graph, plan: Plan, ops: list[Op], stays: list[Stay]):
        self.graph, self.plan, self.ops, self.stays = graph, plan, ops, stays
        self.rows: list[Row] = []
        self.residencies: list[Residency] = []
        self.tick_of: list[int] = [0] * (len(ops) + 1)  # position -> tick of its row
        self.begun: list[tuple[int, Stay]] = []
        self.taken: set[int] = set()  # residencies that another one is laid over

    def emit(self) -> Lowered:
        prefetches: dict[int, list[Stay]] = {}
        starting: dict[int, list[Stay]] = {}
        for stay in sorted(self.stays, key=lambda s: (s.first, s.buffer)):
            where = prefetches if stay.issue is not None else starting
            where.setdefault(stay.first if stay.issue is None else stay.issue, []).append(stay)
        offloads: dict[int, list[Stay]] = {}
        for stay in self.stays:
            if stay.offloads:
                offloads.setdefault(stay.last, []).append(stay)
        live: dict[str, int] = {}
        upcoming: dict[str, list[int]] = {}
        host: dict[str, int] = {}
        seen: set[str] = set()
        for position, op in enumerate(self.ops):
            for stay in prefetches.get(position, ()):
                rid = self._begin(stay)
                source = host.setdefault(stay.buffer, -1)
                if source < 0:
                    source = host[stay.buffer] = self._host(stay.buffer, 0)
                self._copy(H2D, "prefetch", stay.buffer, source, rid)
                upcoming.setdefault(stay.buffer, []).append(rid)
            for buffer in op.touches:
                live.update(self._arriving(buffer, position, starting, upcoming))
            self._op(op, position, live, again=self.plan.order[position] in seen)
            seen.add(self.plan.order[position])
            for stay in sorted(offloads.get(position, ()), key=lambda s: s.buffer):
                if not (self.graph.buffers[stay.buffer].persistent and stay.buffer in host):
                    host[stay.buffer] = self._host(stay.buffer, len(self.rows))
                target = host[stay.buffer]
                self._copy(D2H, "offload", stay.buffer, live[stay.buffer], target)
        self.tick_of[len(self.ops)] = len(self.rows)
        self._close()
        return Lowered(self.rows, self.residencies)

    def _arriving(
        self, buffer: str, position: int, starting: dict[int, list[Stay]], upcoming: dict[str, list[int]]
    ) -> Iterable[tuple[str, int]]:
        """The residency that the op at `position` finds or begins, where it is not the one before."""
        for stay in starting.get(position, ()):
            if stay.buffer == buffer:
                yield buffer, self._begin(stay)
        waiting = upcoming.get(buffer)
        if waiting and self.begun[waiting[0]][1].first == position:
            yield buffer, waiting.pop(0)

    def _begin(self, stay: Stay) -> int:
        rid = len(self.residencies)
        tick = 0 if stay.whole else len(self.rows)
        self.residencies.append(Residency(rid, stay.buffer, tick, -1, self.graph.buffers[stay.buffer].nbytes))
        self.begun.append((rid, stay))
        return rid

    def _host(self, buffer: str, tick: int) -> int:
        rid = len(self.residencies)
        self.residencies.append(Residency(rid, buffer, tick, -1, self.graph.buffers[buffer].nbytes, host=True))
        self.begun.append((rid, Stay(buffer, -1, -1, -1, None, False, False)))
        return rid

    def _copy(self, stream: str, verb: str, buffer: str, source: int, target: int) -> None:
        self.rows.append(Row(len(self.rows), stream, verb, buffer, None, {}, (source,), (target,)))

    def _op(self, op: Op, position: int, live: dict[str, int], again: bool) -> None:
        self.tick_of[position] = tick = len(self.rows)
        roles = {role: live[buffer] for role, buffer in op.roles.items() if buffer in op.touches}
        for overlay in op.overlays:
            self._overlay(overlay.out, overlay.over, overlay.kind, position, live)
        writes = [live[b] for b in (*op.updates, *op.writes)]
        if op.workspace:
            rid = len(self.residencies)
            self.residencies.append(Residency(rid, f"{op.name}.workspace", tick, tick + 1, op.workspace))
            self.begun.append((rid, Stay("", -1, -1, -1, None, False, False)))
            roles["workspace"] = rid
            writes.append(rid)
        reads = tuple(live[b] for b in (*op.reads, *op.updates))
        self.rows.append(Row(tick, COMPUTE, op.kind, op.name, op, roles, reads, tuple(writes), again=again))

    def _overlay(self, out: str, over: str, kind: str, position: int, live: dict[str, int]) -> None:
        """Let `out`, which begins here, take the bytes of `over`, if that is its last use and both are fresh."""
        mine, theirs = self.begun[live[out]][1], self.begun[live[over]][1]
        if kind not in self.plan.overlays or self.residencies[live[out]].over is not None:
            return
        fresh = mine.first == position and theirs.last == position and live[over] not in self.taken
        if fresh and may_overlay(mine, theirs):
            self.taken.add(live[over])
            self.residencies[live[out]] = self.residencies[live[out]]._replace(over=live[over])

    def _close(self) -> None:
        """Give every residency its end, now that every position has its tick."""
        ends = len(self.rows)
        last_touch: dict[int, int] = {}
        for row in self.rows:
            for rid in (*row.reads, *row.writes):
                last_touch[rid] = row.tick
        for rid, stay in self.begun:
            r = self.residencies[rid]
            if stay.whole:
                end = ends
            elif r.end >= 0:
                continue
            elif r.host:
                end = ends if self.graph.buffers[r.buffer].persistent else self._host_end(r, last_touch[rid])
            else:
                end = last_touch[rid] + 1
                if stay.release > stay.last + 1:
                    end = max(end, self.tick_of[min(stay.release, len(self.ops))])
            self.residencies[rid] = r._replace(end=end)

    def _host_end(self, r: Residency, last_copy: int) -> int:
        """A host copy is done with when the last prefetch that reads it has been waited for: at its first reader."""
        row = self.rows[last_copy]
        if row.verb != "prefetch":
            return last_copy + 1
        device = row.writes[0]
        return next((x.tick + 1 for x in self.rows[last_copy + 1 :] if device in x.reads), len(self.rows))
