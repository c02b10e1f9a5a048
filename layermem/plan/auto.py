"""The default under a budget: reuse everywhere, then offload and recompute mixed, for the least predicted time.

    1  reuse alone, if it fits
    2  recomputation at several budgets between the user's and none, from the dynamic program; on each, as few kept
       values are offloaded as make it fit, those with the longest way to their next use first
    3  the same with histories, then parameters, on the host
    4  every single strategy that fits is a candidate too, so no prediction is worse than theirs
    5  offloads and host homes that turned out unnecessary are taken back, one by one, while the time falls

At a link so fast that copies hide, 2 ends without recomputation; at one so slow that they do not, without copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from layermem.graph.ops import DATA, HISTORY, PARAMETER, STASH, Graph
from layermem.plan.base import INTRA, Fate, Gap, Hints, Peak, Plan, ops_in_order, program_order, strategy, uses_of
from layermem.plan.costs import Costs
from layermem.plan.offload import AHEAD, NEAR, homes_on_host, hybrid
from layermem.plan.recompute import Planner
from layermem.plan.sublinear import sublinear

MIXES = 8  # recomputation budgets tried between the user's and the one that needs none
NEGLIGIBLE = 1.0005  # a plan this close to the time of its ops alone needs no better
OPS_LOOKED_AT = 400_000  # ops gone through while taking offloads back: bounds the time, the same on every machine


@strategy("auto", says="reuse, offload and recomputation mixed for the least predicted time that fits the budget")
def auto(graph: Graph, costs: Costs, budget: int | None, peak: Peak, hints: Hints) -> Plan:
    nothing = Plan("auto", program_order(graph), {}, INTRA)
    if budget is None or peak.live(nothing) <= budget:
        return nothing
    fitting: list[tuple[float, Plan]] = []
    leanest: list[tuple[int, Plan]] = []
    unhindered = sum(costs.op(op) for op in graph.ops)  # no plan is faster
    for plan in _candidates(graph, costs, budget, peak, hints, nothing):
        live = peak.live(plan)
        if live <= budget:
            fitting.append((peak.estimate(plan), plan))
            if fitting[-1][0] <= unhindered * NEGLIGIBLE:
                break
        else:
            leanest.append((live, plan))
    if not fitting:
        return replace(min(leanest, key=lambda found: found[0])[1], strategy="auto")
    fitting.sort(key=lambda found: found[0])
    for _, plan in fitting:
        better = replace(_take_back(graph, plan, budget, peak), strategy="auto")
        if peak(better) <= budget:  # placed: what counts in the end
            return better
    return replace(fitting[0][1], strategy="auto")


def _candidates(graph: Graph, costs: Costs, budget: int, peak: Peak, hints: Hints, nothing: Plan) -> Iterator[Plan]:
    hidden = _offload_to_fit(nothing, long_gaps(graph, nothing, hints), {}, budget, peak)
    if peak.live(hidden) <= budget:  # often all that it takes, and quickly tried
        yield hidden
    planner = Planner(graph, costs, "extended")
    bases = [nothing]
    fitting = planner.within(budget, "auto", peak, hints)
    if fitting is not None:
        bases.append(fitting)
    most, least = peak.live(nothing), budget
    for step in range(1, MIXES):
        room = least + (most - least) * step // MIXES
        found = planner.solve(room - planner.base)
        if found is not None:
            bases.append(planner.plan(found, "auto", hints))
    gaps = [long_gaps(graph, base, hints) for base in bases]
    for away in ((), (HISTORY,), (HISTORY, PARAMETER)):
        homes = homes_on_host(graph, away)
        some = False
        for base, movable in zip(bases, gaps):
            for ahead in AHEAD:
                plan = _offload_to_fit(replace(base, ahead=ahead), movable, homes, budget, peak)
                yield plan
                if peak.live(plan) <= budget:
                    some = True
                    break
        if some:
            break
    yield hybrid(graph, costs, budget, peak, hints)
    yield sublinear(graph, costs, budget, peak, hints)


def _offload_to_fit(plan: Plan, gaps: list[Gap], homes: dict[Gap, Fate], budget: int, peak: Peak) -> Plan:
    """`plan` with the fewest of `gaps` offloaded, the first ones first, that fit; all of them if none do."""
    low, high = 0, len(gaps)

    def with_first(count: int) -> Plan:
        return replace(plan, fates={**homes, **dict.fromkeys(gaps[:count], Fate.OFFLOAD)})

    if peak.live(with_first(high)) > budget:
        return with_first(high)
    while low < high:
        middle = (low + high) // 2
        if peak.live(with_first(middle)) <= budget:
            high = middle
        else:
            low = middle + 1
    return with_first(high)


def long_gaps(graph: Graph, plan: Plan, hints: Hints) -> list[Gap]:
    """Gaps of activations and stashes that the order keeps, longest first: from forward into the backward pass."""
    found = []
    uses = uses_of(ops_in_order(graph, plan.order))
    room = hints.host_budget
    for name, buffer in graph.buffers.items():
        if buffer.kind not in (DATA, STASH) or name not in uses:
            continue
        mine = uses[name]
        for number in range(len(mine) - 1):
            here, there = mine[number], mine[number + 1]
            if there.reads and there.position - here.position > NEAR:
                found.append((there.position - here.position, Gap(name, number)))
    found.sort(key=lambda item: (-item[0], item[1]))
    if room is not None:
        kept = []
        for length, gap in found:
            if graph.buffers[gap.buffer].nbytes <= room:
                room -= graph.buffers[gap.buffer].nbytes
                kept.append((length, gap))
        found = kept
    return [gap for _, gap in found]


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
