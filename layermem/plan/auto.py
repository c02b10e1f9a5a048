"""The default under a budget: reuse everywhere, then offload and recompute mixed, for the least predicted time.

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

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from layermem.graph.ops import Graph, Use, uses_of
from layermem.plan.base import Fate, Gap, Hints, Peak, Plan, ops_in_order, strategy
from layermem.plan.costs import Costs
from layermem.plan.offload import (
    AHEAD,
    AWAY,
    Host,
    activations,
    homes_on_host,
    hybrid,
    inter,
    long_gaps,
    vdnn_all,
    vdnn_conv,
)  # fmt: skip
from layermem.plan.rebuild import forward_ops, segments_to_plan
from layermem.plan.recompute import planner_of, recompute_approx
from layermem.plan.sublinear import sublinear

Uses = Mapping[str, list[Use]]

MIXES = 8  # recomputation budgets tried between the user's and the one that needs none
NEGLIGIBLE = 1.0005  # a plan this close to the time of its ops alone needs no better
OPS_LOOKED_AT = 400_000  # ops gone through while taking offloads back: bounds the time, the same on every machine


@strategy("auto", says="reuse, offload and recomputation mixed for the least predicted time that fits the budget")
def auto(graph: Graph, costs: Costs, budget: int | None, peak: Peak, hints: Hints) -> Plan:
    nothing = segments_to_plan(graph, [forward_ops(graph)], "auto", hints=hints)
    if budget is None or peak.live(nothing) <= budget:
        return nothing
    tried: list[tuple[int, Plan]] = []
    fitting: list[tuple[float, Plan]] = []
    unhindered = sum(costs.op(op) for op in graph.ops)  # no plan is faster
    for plan in _candidates(graph, costs, budget, peak, hints, nothing):
        tried.append((peak.live(plan), plan))
        if tried[-1][0] <= budget:
            fitting.append((peak.estimate(plan), plan))
            if fitting[-1][0] <= unhindered * NEGLIGIBLE:
                break
    if not fitting:
        return replace(min(tried, key=lambda found: found[0])[1], strategy="auto")
    starts: dict[frozenset[str], Plan] = {}  # buffers that live on the host -> the quickest plan
    for _, plan in sorted(fitting, key=lambda found: found[0]):
        starts.setdefault(frozenset(gap.buffer for gap in plan.fates if gap.use == -1), plan)
    ends = [_take_back(graph, plan, budget, peak) for plan in starts.values()]
    return replace(min(ends, key=peak.estimate), strategy="auto")


def _candidates(graph: Graph, costs: Costs, budget: int, peak: Peak, hints: Hints, nothing: Plan) -> Iterator[Plan]:
    def offloading(base: Plan, uses: Uses, away: Collection[str]) -> Iterator[Plan]:
        host = Host(graph, hints)
        homes = homes_on_host(graph, uses, away, host)
        gaps = [gap for gap in long_gaps(graph, uses, activations(graph)) if host.take(gap.buffer)]
        for ahead in AHEAD:
            yield _offload_to_fit(replace(base, ahead=ahead), gaps, homes, budget, peak)

    nothings = (nothing, uses_of(ops_in_order(graph, nothing.order)))
    for away in AWAY:  # often all that it takes, and quickly tried
        yield next(offloading(*nothings, away))
    bases = [(base, uses_of(ops_in_order(graph, base.order))) for base in _bases(graph, costs, budget, peak, hints)]
    for away in AWAY:
        for base, uses in (nothings, *bases):
            for plan in offloading(base, uses, away):
                yield plan
                if peak.live(plan) <= budget:
                    break
    for make in (hybrid, inter, vdnn_all, vdnn_conv, sublinear, recompute_approx):
        yield make(graph, costs, budget, peak, hints)


def _bases(graph: Graph, costs: Costs, budget: int, peak: Peak, hints: Hints) -> Iterator[Plan]:
    """Plans that recompute, from as much as the budget asks for to little."""
    planner = planner_of(graph, costs, "extended", peak, hints)
    yield planner.within(budget, "auto", peak) or planner.leanest("auto", peak)
    most = peak.live(Plan("auto", tuple(op.name for op in graph.ops)))
    for step in range(1, MIXES):
        found = planner.solve(budget + (most - budget) * step // MIXES - planner.base)
        if found is not None:
            yield planner.plan(found, "auto")


def _offload_to_fit(plan: Plan, gaps: list[Gap], homes: dict[Gap, Fate], budget: int, peak: Peak) -> Plan:
    """`plan` with the fewest of `gaps` offloaded, the first ones first, that fit; all of them if none do."""

    def with_first(count: int) -> Plan:
        return replace(plan, fates={**homes, **dict.fromkeys(gaps[:count], Fate.OFFLOAD)})

    low, high = 0, len(gaps)
    if peak.live(with_first(high)) > budget:
        return with_first(high)
    while low < high:
        middle = (low + high) // 2
        if peak.live(with_first(middle)) <= budget:
            high = middle
        else:
            low = middle + 1
    return with_first(high)


def _take_back(graph: Graph, plan: Plan, budget: int, peak: Peak) -> Plan:
    """The plan without the offloads that it can do without, while the estimate does not rise."""
    seconds = peak.estimate(plan)
    looks = max(0, OPS_LOOKED_AT // len(plan.order))
    groups: dict[object, list[Gap]] = {}
    homes = {gap.buffer for gap in plan.fates if gap.use == -1}
    for gap, fate in plan.fates.items():
        if fate is Fate.OFFLOAD:
            groups.setdefault(gap.buffer if gap.buffer in homes else gap, []).append(gap)
    by_size = sorted(groups.values(), key=lambda gaps: -graph.buffers[gaps[0].buffer].nbytes)
    for gaps in by_size[:looks]:
        tried = replace(plan, fates={gap: fate for gap, fate in plan.fates.items() if gap not in set(gaps)})
        if peak.live(tried) <= budget:
            now = peak.estimate(tried)
            if now <= seconds:
                plan, seconds = tried, now
    return plan
