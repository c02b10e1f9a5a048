"""From a plan to rows: residencies for every stretch that must be held, copies where the plan says OFFLOAD.

    uses of a buffer in the order     w . . r . . . . . . r . r        w writes, r reads
    fates of its gaps                  KEEP    OFFLOAD     KEEP  DROP
    residencies                       |#######|        |#####|
    rows                                     ^offload ^prefetch

An offload is issued right after the use before its gap and a prefetch some time before the use after it.  `ahead`
decides how long the bytes stay beside the copy: the copies' queues are laid out in the modelled time of the ops, each
offload as early and each prefetch as late as its queue permits, and the residency covers that share of the copy.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from layermem.graph.ops import Graph, Op
from layermem.plan.base import Fate, Gap, Plan, Use, ops_in_order, uses_of
from layermem.plan.costs import Costs
from layermem.schedule.ir import COMPUTE, D2H, H2D, Residency, Row
from layermem.units import aligned


@dataclass(slots=True)
class Stay:
    """A residency while it is being laid out.  `first` and `last` are positions in the order.

    `release` is the position before whose row the bytes are free again (after `last`, later where a copy carries them
    off); `issue` the position before whose row a prefetch stands (None: `first` writes the bytes itself).
    """

    buffer: str
    first: int
    last: int
    release: int
    issue: int | None = None
    offloads: bool = False
    whole: bool = False  # resident for the whole run
    clean: bool = False  # the host holds the same bytes already


@dataclass(frozen=True)
class Lowered:
    """Rows whose residencies have no offsets yet."""

    rows: list[Row]
    residencies: list[Residency]


def lower(graph: Graph, plan: Plan, costs: Costs) -> Lowered:
    """Rows and residencies of `plan`, to be placed (place.py)."""
    ops, stays = lay_out(graph, plan, costs)
    return _Emitter(graph, plan, ops, stays).emit()


def lay_out(graph: Graph, plan: Plan, costs: Costs) -> tuple[list[Op], list[Stay]]:
    """The op at each position, and the stays of all buffers."""
    ops = ops_in_order(graph, plan.order)
    stays = [stay for buffer, uses in uses_of(ops).items() for stay in _stays(graph, plan, buffer, uses)]
    if any(stay.offloads or stay.issue is not None for stay in stays):
        _time_copies(graph, plan, costs, ops, stays)
    return ops, stays


def live_bytes(graph: Graph, plan: Plan, costs: Costs) -> int:
    """Most aligned bytes in use at one tick, without laying out any row.

    Copies need not be looked at: whatever is in use while one is issued is in use at the op before or after it.
    """
    ops, stays = lay_out(graph, plan, costs)
    change = [0] * (len(ops) + 1)
    last: dict[tuple[str, int], Stay] = {}
    first: dict[tuple[str, int], Stay] = {}
    size = {name: aligned(buffer.nbytes) for name, buffer in graph.buffers.items()}
    for stay in stays:
        nbytes = size[stay.buffer]
        if stay.whole:
            change[0] += nbytes
        else:
            change[stay.first if stay.issue is None else stay.issue] += nbytes
            change[min(stay.release, len(ops))] -= nbytes
        first[stay.buffer, stay.first], last[stay.buffer, stay.last] = stay, stay
    for position, op in enumerate(ops):
        taken = set()
        for overlay in op.overlays:
            out, over = first.get((overlay.out, position)), last.get((overlay.over, position))
            if out is None or over is None or overlay.out in taken or over.buffer in taken:
                continue
            if overlay.kind in plan.overlays and may_overlay(out, over):
                taken |= {overlay.out, over.buffer}
                change[0 if out.whole else position] -= size[overlay.out]
                if not out.whole:
                    change[position + 1] += size[overlay.out]
        change[position] += aligned(op.workspace)
        change[position + 1] -= aligned(op.workspace)
    return max(accumulate(change))


def estimate_seconds(graph: Graph, plan: Plan, costs: Costs) -> float:
    """Seconds of a step without placement: as if all bytes that a copy frees were wanted at once.

    An op waits for the prefetches of what it touches, and for the offloads whose bytes are given away before it; never
    less than simulate.py finds once offsets are known, but for queues of copies that it lays out row by row.
    """
    ops, stays = lay_out(graph, plan, costs)
    arriving: dict[int, list[Stay]] = {}
    waited: dict[int, list[Stay]] = {}
    leaving: dict[int, list[Stay]] = {}
    released: dict[int, list[Stay]] = {}
    for stay in stays:
        if stay.issue is not None:
            arriving.setdefault(stay.issue, []).append(stay)
            waited.setdefault(stay.first, []).append(stay)
        if stay.offloads:
            leaving.setdefault(stay.last, []).append(stay)
            released.setdefault(stay.release, []).append(stay)
    now = d2h = h2d = 0.0
    done: dict[int, float] = {}  # id of a stay -> when its copy is complete
    for position, op in enumerate(ops):
        for stay in released.get(position, ()):
            now = max(now, done[id(stay)])
        for stay in arriving.get(position, ()):
            h2d = max(h2d, now) + costs.prefetch(graph.buffers[stay.buffer].nbytes)
            done[-id(stay)] = h2d
        for stay in waited.get(position, ()):
            now = max(now, done[-id(stay)])
        now += costs.op(op)
        for stay in leaving.get(position, ()):
            d2h = max(d2h, now) + costs.offload(graph.buffers[stay.buffer].nbytes)
            done[id(stay)] = d2h
    return max(now, d2h, h2d)


def may_overlay(out: Stay, over: Stay) -> bool:
    """Whether `out` may begin on the bytes of `over`, at the op where the one begins and the other ends."""
    return out.issue is None and not over.offloads and out.whole == over.whole


def _stays(graph: Graph, plan: Plan, buffer: str, uses: list[Use]) -> Iterable[Stay]:
    """The stretches during which `buffer` is resident, in order."""
    persistent = graph.buffers[buffer].persistent
    fate_of_last = plan.fates.get(Gap(buffer, -1))
    at_home = fate_of_last is not Fate.OFFLOAD if persistent else fate_of_last is Fate.KEEP
    if at_home:
        yield Stay(buffer, uses[0].position, uses[-1].position, uses[-1].position + 1, whole=True)
        return
    here: Stay | None = None
    clean = persistent  # a parameter whose home is the host starts the step with its bytes there
    for number, use in enumerate(uses):
        if here is None:
            if use.reads and not clean:
                raise ValueError(f"the plan reads '{buffer}' at {plan.order[use.position]} before anything made it")
            issue = use.position if use.reads else None
            here = Stay(buffer, use.position, use.position, use.position + 1, issue)
        here.last, here.release = use.position, use.position + 1
        clean = clean and not use.writes
        if number + 1 == len(uses):
            if persistent and not clean:
                here.offloads = True
            yield here
            return
        following = uses[number + 1]
        fate = plan.fates.get(Gap(buffer, number))
        if fate is Fate.OFFLOAD and following.reads:
            here.offloads = not clean
            here.clean = clean
            clean = True
            yield here
            here = None
        elif fate is Fate.DROP or not following.reads:
            if following.reads:
                raise ValueError(f"the plan drops '{buffer}' before {plan.order[following.position]} reads it")
            yield here
            here = None


def _time_copies(graph: Graph, plan: Plan, costs: Costs, ops: list[Op], stays: list[Stay]) -> None:
    """Move releases later and prefetches earlier, in the modelled time of the compute stream."""
    ends = list(accumulate(costs.op(op) for op in ops))
    starts = [0.0, *ends[:-1]]
    free = 0.0
    for stay in sorted((s for s in stays if s.offloads), key=lambda s: s.last):
        duration = costs.offload(graph.buffers[stay.buffer].nbytes)
        begin = max(free, ends[stay.last])
        free = begin + duration
        done = begin + duration * plan.ahead if plan.ahead < 1 else free
        stay.release = max(stay.last + 1, bisect_left(starts, done)) if plan.ahead > 0 else stay.last + 1
    free = ends[-1]
    left: dict[str, list[int]] = {}
    for stay in stays:  # a prefetch cannot start before the stay before it is over
        left.setdefault(stay.buffer, []).append(stay.last + 1)
    for stay in sorted((s for s in stays if s.issue is not None), key=lambda s: -s.first):
        duration = costs.prefetch(graph.buffers[stay.buffer].nbytes)
        free = min(free, starts[stay.first]) - duration
        begin = free if plan.ahead >= 1 else starts[stay.first] - duration * plan.ahead
        away = [p for p in left[stay.buffer] if p <= stay.first]
        stay.issue = min(stay.first, max(bisect_right(starts, begin) - 1, *away, 0))


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
        self.begun.append((rid, Stay(buffer, -1, -1, -1)))
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
            self.begun.append((rid, Stay("", -1, -1, -1)))
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
