"""Strategies that move bytes to the host between two uses, and Layrub's intra-layer reuse.

    intra       gradients over activation data, wherever what backward reads permits it
    inter       every activation, stash and batch leaves after its last forward use and returns before its backward
    hybrid      both; parameters and histories live on the host too
    vdnn-all    the input of every layer leaves (vDNN_all); vdnn-conv: the inputs of convolutions alone (vDNN_conv)

Copies run on their own streams as far ahead as the budget lets them: the plan that hides most of them and fits wins.
source  Layrub (Liu et al., PPoPP 2018; TACO 15(3)); vDNN (Rhu et al., MICRO 2016)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from layermem.graph.ops import BACKWARD, DATA, FORWARD, HISTORY, STASH, UPDATE, Graph, Op
from layermem.plan.base import (
    INTRA,
    REUSE,
    Fate,
    Gap,
    Hints,
    Peak,
    Plan,
    Use,
    program_order,
    strategy,
    uses_of,
)  # fmt: skip
from layermem.plan.costs import Costs
from layermem.units import aligned

AHEAD = (1.0, 0.5, 0.0)  # how much of each copy may lie beside other work, tried in this order
NEAR = 2  # a gap of so few ops is not worth a round trip


@strategy("intra", says="write gradients over activation data (Layrub's intra-layer reuse)")
def intra(graph: Graph, costs: Costs, budget: int | None, peak: Peak, hints: Hints) -> Plan:
    return Plan("intra", program_order(graph), {}, INTRA)


@strategy("inter", says="offload every activation between forward and backward (Layrub's inter-layer reuse)")
def inter(graph: Graph, costs: Costs, budget: int | None, peak: Peak, hints: Hints) -> Plan:
    fates = forward_gaps(graph, [b.name for b in graph.buffers.values() if b.kind in (DATA, STASH)], hints)
    return as_far_ahead_as_fits(Plan("inter", program_order(graph), fates, REUSE), budget, peak)


@strategy("hybrid", says="intra and inter together, parameters and histories on the host if need be (Layrub)")
def hybrid(graph: Graph, costs: Costs, budget: int | None, peak: Peak, hints: Hints) -> Plan:
    names = [b.name for b in graph.buffers.values() if b.kind in (DATA, STASH)]
    plan = Plan("hybrid", program_order(graph), forward_gaps(graph, names, hints), INTRA)
    found = plan
    for away in ((), (HISTORY,), (HISTORY, "parameter")):
        fates = {**plan.fates, **homes_on_host(graph, away)}
        found = as_far_ahead_as_fits(replace(plan, fates=fates), budget, peak)
        if budget is not None and peak.live(found) <= budget:
            return found
    return found


@strategy("vdnn-all", says="offload the input of every layer (vDNN_all)")
def vdnn_all(graph: Graph, costs: Costs, budget: int | None, peak: Peak, hints: Hints) -> Plan:
    return _vdnn("vdnn-all", graph, budget, peak, hints, lambda op: True)


@strategy("vdnn-conv", says="offload the inputs of convolutions (vDNN_conv)")
def vdnn_conv(graph: Graph, costs: Costs, budget: int | None, peak: Peak, hints: Hints) -> Plan:
    return _vdnn("vdnn-conv", graph, budget, peak, hints, lambda op: op.kernel.startswith("Convolution."))


def _vdnn(name: str, graph: Graph, budget: int | None, peak: Peak, hints: Hints, chosen: Callable[[Op], bool]) -> Plan:
    inputs = [b for op in graph.of_kind(FORWARD) if op.node >= 0 and op.layer is not None and chosen(op)
              for b in op.reads if graph.buffers[b].kind == DATA]  # fmt: skip
    fates = forward_gaps(graph, dict.fromkeys(inputs), hints)
    return as_far_ahead_as_fits(Plan(name, program_order(graph), fates, REUSE), budget, peak)


# -- gaps ------------------------------------------------------------------------------------------------------


def forward_gaps(graph: Graph, buffers: Iterable[str], hints: Hints) -> dict[Gap, Fate]:
    """OFFLOAD for the gap of each buffer that leads from the forward pass into the backward pass, if there is one.

    A host budget keeps the buffers with the longest gaps, since the bytes come free for longest.
    """
    uses = uses_of(list(graph.ops))
    gaps = []
    for buffer in buffers:
        crossing = crossing_gap(graph, uses.get(buffer, []))
        if crossing is not None:
            length = uses[buffer][crossing + 1].position - uses[buffer][crossing].position
            if length > NEAR:
                gaps.append((length, Gap(buffer, crossing)))
    if hints.host_budget is not None:
        room = hints.host_budget
        kept = []
        for length, gap in sorted(gaps, reverse=True):
            if aligned(graph.buffers[gap.buffer].nbytes) <= room:
                room -= aligned(graph.buffers[gap.buffer].nbytes)
                kept.append((length, gap))
        gaps = kept
    return {gap: Fate.OFFLOAD for _, gap in gaps}


def crossing_gap(graph: Graph, uses: list[Use]) -> int | None:
    """The number of the last use in the forward pass, if a use in the backward pass reads the same bytes."""
    last = None
    for number, use in enumerate(uses):
        if graph.ops[use.position].kind == FORWARD:
            last = number
        else:
            return last if use.reads and last is not None else None
    return None


def homes_on_host(graph: Graph, kinds: Collection[str]) -> dict[Gap, Fate]:
    """All gaps of the persistent buffers of `kinds` as OFFLOAD: they visit the device only where they are used.

    Uses that follow each other closely (both backward ops and the update of a layer) share a visit.
    """
    fates: dict[Gap, Fate] = {}
    uses = uses_of(list(graph.ops))
    for buffer in graph.persistent():
        if buffer.kind not in kinds or buffer.name not in uses:
            continue
        mine = uses[buffer.name]
        fates[Gap(buffer.name, -1)] = Fate.OFFLOAD
        for number in range(len(mine) - 1):
            here, there = mine[number].position, mine[number + 1].position
            kinds_there = graph.ops[here].kind, graph.ops[there].kind
            if there - here > NEAR and kinds_there[1] in (BACKWARD, UPDATE):
                fates[Gap(buffer.name, number)] = Fate.OFFLOAD
    return fates


def as_far_ahead_as_fits(plan: Plan, budget: int | None, peak: Peak) -> Plan:
    """The plan with the most of its copies hidden that fits; without a budget, or if none fits, the leanest."""
    if budget is not None:
        for ahead in AHEAD:
            tried = replace(plan, ahead=ahead)
            if peak.live(tried) <= budget:
                return tried
    return replace(plan, ahead=0.0)
