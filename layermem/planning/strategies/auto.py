"""The default under a budget: reuse everywhere, then offload and recompute mixed, for the least predicted time.

    0  weight gradients are used up while they are made, wherever the graph offers that (graph/fused_update.py)
    1  reuse alone, if it fits
    2  recomputation at several budgets between the user's and none, from the dynamic program; on each, as few kept
       values are offloaded as make it fit, those with the longest way to their next use first
    3  the same with histories, then parameters, on the host
    4  the strategies that only offload or only recompute are candidates too, so no prediction is worse than theirs
    5  from the quickest plan for each choice of host homes, offloads and homes that turned out unnecessary are taken
       back, one by one, while the time falls

At a link so fast that copies hide, 2 ends without recomputation; at one so slow that they do not, without copies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from math import inf

from layermem.graph.ops import Graph, uses_of
from layermem.planning.base import Decision, Gap, Hints, Plan, PlanEvaluator, ops_in_order, strategy
from layermem.planning.costs import Costs
from layermem.planning.recomputation import forward_ops, segments_to_plan
from layermem.planning.strategies.offload import (
    COPY_LEADS,
    OFFLOADED_KINDS,
    Host,
    activations,
    homes_on_host,
    hybrid,
    inter,
    long_gaps,
    vdnn_all,
    vdnn_conv,
)  # fmt: skip
from layermem.planning.strategies.recompute import planner_of, recompute_approx
from layermem.planning.strategies.sublinear import sublinear

MIXES = 8  # recomputation budgets tried between the user's and the one that needs none
NEGLIGIBLE = 1.0005  # a plan this close to the time of its ops alone needs no better
OPS_LOOKED_AT = 400_000  # ops gone through while taking offloads back: bounds the time, the same on every machine


@strategy(
    "auto", description="reuse, offload and recomputation mixed for the least predicted time that fits the budget"
)
def auto(graph: Graph, costs: Costs, budget: int | None, evaluator: PlanEvaluator, hints: Hints) -> Plan:
    graph = graph.with_fused_updates
    nothing = segments_to_plan(graph, [forward_ops(graph)], "auto", hints=hints)
    if budget is None or evaluator.live_bytes(nothing) <= budget:
        return nothing
    search = _Search(graph, costs, budget, evaluator, hints)
    search.run(nothing)
    if not search.fitting:
        return replace(min(search.tried, key=lambda found: found[0])[1], strategy="auto")
    starts: dict[frozenset[str], Plan] = {}  # buffers that live on the host -> the quickest plan
    for _, plan in sorted(search.fitting, key=lambda found: found[0]):
        starts.setdefault(frozenset(gap.buffer for gap in plan.decisions if gap.use == -1), plan)
    ends = [_take_back(graph, plan, budget, evaluator) for plan in starts.values()]
    return replace(min(ends, key=evaluator.estimate_seconds), strategy="auto")


class _Search:
    """Plans looked at for one budget.  `best`: seconds of the quickest one that fits; what cannot be quicker is left
    out."""

    def __init__(self, graph: Graph, costs: Costs, budget: int, evaluator: PlanEvaluator, hints: Hints):
        self.graph, self.costs, self.budget, self.evaluator, self.hints = graph, costs, budget, evaluator, hints
        self.tried: list[tuple[int, Plan]] = []  # bytes in use
        self.fitting: list[tuple[float, Plan]] = []  # seconds
        self.best = inf
        self.good = NEGLIGIBLE * sum(costs.op(op) for op in graph.ops)  # no plan is much quicker

    def run(self, nothing: Plan) -> None:
        bases = [_Base(self, nothing)]
        for away in OFFLOADED_KINDS:  # often all that it takes, and quickly tried
            for plan in islice(bases[0].offloading(away), 1):
                self.look(plan)
        bases += [_Base(self, plan) for plan in self._recomputing()]
        for away in OFFLOADED_KINDS:
            for base in bases:
                for plan in base.offloading(away):
                    self.look(plan)
        for make in (hybrid, inter, vdnn_all, vdnn_conv, sublinear, recompute_approx):
            if self.best > self.good:
                self.look(make(self.graph, self.costs, self.budget, self.evaluator, self.hints))

    def look(self, plan: Plan) -> None:
        live = self.evaluator.live_bytes(plan)
        self.tried.append((live, plan))
        if live <= self.budget:
            self.fitting.append((self.evaluator.estimate_seconds(plan), plan))
            self.best = min(self.best, self.fitting[-1][0])

    def fits(self, plan: Plan) -> bool:
        return self.evaluator.live_bytes(plan) <= self.budget

    def _recomputing(self) -> Iterator[Plan]:
        """Plans that recompute, from as much as the budget asks for to little."""
        if self.best <= self.good:
            return
        planner = planner_of(self.graph, self.costs, "extended", self.evaluator, self.hints)
        least = planner.within(self.budget, "auto", self.evaluator)
        yield least or planner.min_memory_plan("auto", self.evaluator)
        most = self.evaluator.live_bytes(Plan("auto", tuple(op.name for op in self.graph.ops)))
        for step in range(1, MIXES):
            found = planner.solve(self.budget + (most - self.budget) * step // MIXES - planner.base)
            if found is not None:
                yield planner.plan(found, "auto")


class _Base:
    """A plan without copies, and what may be offloaded from it."""

    def __init__(self, search: _Search, plan: Plan):
        self.search, self.plan = search, plan
        ops = ops_in_order(search.graph, plan.order)
        self.uses = uses_of(ops)
        self.seconds = sum(search.costs.op(op) for op in ops)

    def offloading(self, away: Collection[str]) -> Iterator[Plan]:
        """The plan with the fewest activations offloaded that fit, those with the longest way to their next use first,
        and `away` on the host; or with all, if that does not fit either."""
        search = self.search
        if search.best <= max(self.seconds, search.good):
            return
        host = Host(search.graph, search.hints)
        homes = homes_on_host(search.graph, self.uses, away, host)
        gaps = [gap for gap in long_gaps(search.graph, self.uses, activations(search.graph)) if host.take(gap.buffer)]
        leanest = self._with(homes, gaps, 0.0)
        if not search.fits(leanest):
            yield leanest
            return
        for copy_lead in COPY_LEADS:
            plan = self._fewest(homes, gaps[: self._quick_enough(homes, gaps)], copy_lead)
            if plan is not None:
                yield plan

    def _with(self, homes: Mapping[Gap, Decision], gaps: Sequence[Gap], copy_lead: float) -> Plan:
        return replace(self.plan, decisions={**homes, **dict.fromkeys(gaps, Decision.OFFLOAD)}, copy_lead=copy_lead)

    def _quick_enough(self, homes: Mapping[Gap, Decision], gaps: Sequence[Gap]) -> int:
        """How many of `gaps` can come back over the link in less time than the best plan takes."""
        spent, buffers = 0.0, self.search.graph.buffers
        for count, gap in enumerate((*homes, *gaps)):
            spent += self.search.costs.prefetch(buffers[gap.buffer].nbytes)
            if spent >= self.search.best:
                return max(0, count - len(homes))
        return len(gaps)

    def _fewest(self, homes: Mapping[Gap, Decision], gaps: Sequence[Gap], copy_lead: float) -> Plan | None:
        """The plan with the fewest of `gaps` that fit, the first ones first.  Copies that lie beside other work take
        bytes too, so more of them may need more: the count is doubled until it fits, then halved back."""
        fails, fits = -1, 0
        while not self.search.fits(self._with(homes, gaps[:fits], copy_lead)):
            if fits >= len(gaps):
                return None
            fails, fits = fits, min(2 * fits or 1, len(gaps))
        while fits - fails > 1:
            middle = (fails + fits) // 2
            if self.search.fits(self._with(homes, gaps[:middle], copy_lead)):
                fits = middle
            else:
                fails = middle
        return self._with(homes, gaps[:fits], copy_lead)


def _take_back(graph: Graph, plan: Plan, budget: int, evaluator: PlanEvaluator) -> Plan:
    """The plan without the offloads that it can do without, while the estimate does not rise."""
    seconds = evaluator.estimate_seconds(plan)
    looks = max(0, OPS_LOOKED_AT // len(plan.order))
    groups: dict[object, list[Gap]] = {}
    homes = {gap.buffer for gap in plan.decisions if gap.use == -1}
    for gap, decision in plan.decisions.items():
        if decision is Decision.OFFLOAD:
            groups.setdefault(gap.buffer if gap.buffer in homes else gap, []).append(gap)
    by_size = sorted(groups.values(), key=lambda gaps: -graph.buffers[gaps[0].buffer].nbytes)
    for gaps in by_size[:looks]:
        tried = replace(
            plan, decisions={gap: decision for gap, decision in plan.decisions.items() if gap not in set(gaps)}
        )
        if evaluator.live_bytes(tried) <= budget:
            now = evaluator.estimate_seconds(tried)
            if now <= seconds:
                plan, seconds = tried, now
    return plan
