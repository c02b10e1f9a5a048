"""Strategies that move bytes to the host between two uses, and Layrub's intra-layer reuse.

    intra       gradients over activation data, wherever what backward reads permits it
    inter       every activation, stash and batch leaves after its last forward use and returns before its backward
    hybrid      both; parameters and histories live on the host too
    vdnn-all    the input of every layer leaves (vDNN_all); vdnn-conv: the inputs of convolutions alone (vDNN_conv)

Copies run on their own streams as far ahead as the budget lets them: the plan that hides most of them and fits wins.
source  Layrub (Liu et al., PPoPP 2018; TACO 15(3)); vDNN (Rhu et al., MICRO 2016)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from layermem.graph.ops import DATA, FORWARD, HISTORY, PARAMETER, STASH, Graph, Op, Use
from layermem.planning.base import INTRA, REUSE, Decision, Gap, Hints, Plan, PlanEvaluator, program_order, strategy
from layermem.planning.costs import Costs
from layermem.utils.units import aligned

COPY_LEADS = (1.0, 0.5, 0.0)  # how much of each copy may lie beside other work, tried in this order
OFFLOADED_KINDS: tuple[tuple[str, ...], ...] = (
    (),
    (HISTORY,),
    (HISTORY, PARAMETER),
)  # kinds whose home is the host, in turn
NEAR = 2  # a gap of so few ops is not worth a round trip


@strategy("intra", description="write gradients over activation data (Layrub's intra-layer reuse)")
def intra(graph: Graph, costs: Costs, budget: int | None, evaluator: PlanEvaluator, hints: Hints) -> Plan:
    return Plan("intra", program_order(graph), {}, INTRA)


@strategy("inter", description="offload every activation between forward and backward (Layrub's inter-layer reuse)")
def inter(graph: Graph, costs: Costs, budget: int | None, evaluator: PlanEvaluator, hints: Hints) -> Plan:
    decisions = crossing_gaps(graph, activations(graph), Host(graph, hints))
    return as_far_ahead_as_fits(Plan("inter", program_order(graph), decisions, REUSE), budget, evaluator)


@strategy("hybrid", description="intra and inter together, parameters and histories on the host if need be (Layrub)")
def hybrid(graph: Graph, costs: Costs, budget: int | None, evaluator: PlanEvaluator, hints: Hints) -> Plan:
    plan = Plan("hybrid", program_order(graph), {}, INTRA)
    for away in OFFLOADED_KINDS:
        host = Host(graph, hints)
        homes = homes_on_host(graph, graph.uses, away, host)
        decisions = {**crossing_gaps(graph, activations(graph), host), **homes}
        plan = as_far_ahead_as_fits(replace(plan, decisions=decisions), budget, evaluator)
        if budget is not None and evaluator.live_bytes(plan) <= budget:
            break
    return plan


@strategy("vdnn-all", description="offload the input of every layer (vDNN_all)")
def vdnn_all(graph: Graph, costs: Costs, budget: int | None, evaluator: PlanEvaluator, hints: Hints) -> Plan:
    return _vdnn("vdnn-all", graph, budget, evaluator, hints, lambda op: True)


@strategy("vdnn-conv", description="offload the inputs of convolutions (vDNN_conv)")
def vdnn_conv(graph: Graph, costs: Costs, budget: int | None, evaluator: PlanEvaluator, hints: Hints) -> Plan:
    return _vdnn("vdnn-conv", graph, budget, evaluator, hints, lambda op: op.layer_type.startswith("Convolution"))


def _vdnn(
    name: str, graph: Graph, budget: int | None, evaluator: PlanEvaluator, hints: Hints, chosen: Callable[[Op], bool]
) -> Plan:
    inputs = {b for op in graph.of_kind(FORWARD) if chosen(op) for b in op.reads if graph.buffers[b].kind == DATA}
    decisions = crossing_gaps(graph, inputs, Host(graph, hints))
    return as_far_ahead_as_fits(Plan(name, program_order(graph), decisions, REUSE), budget, evaluator)


def as_far_ahead_as_fits(plan: Plan, budget: int | None, evaluator: PlanEvaluator) -> Plan:
    """The plan with the most of its copies hidden that fits; without a budget, or if none fits, the leanest."""
    if budget is not None:
        for copy_lead in COPY_LEADS:
            tried = replace(plan, copy_lead=copy_lead)
            if evaluator.live_bytes(tried) <= budget:
                return tried
    return replace(plan, copy_lead=0.0)


# -- what leaves -----------------------------------------------------------------------------------------------


class Host:
    """What is left of the user's host budget, if there is one."""

    def __init__(self, graph: Graph, hints: Hints):
        self.graph, self.room = graph, hints.host_budget

    def take(self, buffer: str) -> bool:
        """Reserve the bytes of a copy of `buffer`, unless they are more than what is left."""
        if self.room is None:
            return True
        nbytes = aligned(self.graph.buffers[buffer].nbytes)
        if nbytes > self.room:
            return False
        self.room -= nbytes
        return True


def activations(graph: Graph) -> list[str]:
    """Activations, stashes and batches."""
    return [b.name for b in graph.buffers.values() if b.kind in (DATA, STASH)]


def crossing_gaps(graph: Graph, buffers: Collection[str], host: Host) -> dict[Gap, Decision]:
    """OFFLOAD for the gap of each buffer that leads from the forward pass into the backward pass, if there is one.

    The longest gaps come first, since their bytes come free for longest: it matters where the host has little room.
    """
    last = max((p for p, op in enumerate(graph.ops) if op.kind == FORWARD), default=-1)
    gaps = [gap for gap in long_gaps(graph, graph.uses, buffers) if _position(graph.uses, gap) <= last]
    crossing = [gap for gap in gaps if graph.uses[gap.buffer][gap.use + 1].position > last]
    return {gap: Decision.OFFLOAD for gap in crossing if host.take(gap.buffer)}


def long_gaps(graph: Graph, uses: Mapping[str, list[Use]], buffers: Iterable[str]) -> list[Gap]:
    """Gaps of `buffers` over which bytes are kept, longest first, but for those too short for a round trip."""
    found = []
    for buffer in buffers:
        mine = uses.get(buffer, [])
        for number in range(len(mine) - 1):
            length = mine[number + 1].position - mine[number].position
            if mine[number + 1].reads and length > NEAR:
                found.append((-length, Gap(buffer, number)))
    return [gap for _, gap in sorted(found)]


def homes_on_host(
    graph: Graph, uses: Mapping[str, list[Use]], kinds: Collection[str], host: Host
) -> dict[Gap, Decision]:
    """OFFLOAD for the last gaps of the persistent buffers of `kinds`, and for all others but the shortest: they visit
    the device where they are used, and uses that follow each other closely share a visit."""
    names = [b.name for b in graph.persistent() if b.kind in kinds and b.name in uses and host.take(b.name)]
    gaps = [*(Gap(name, -1) for name in names), *long_gaps(graph, uses, names)]
    return dict.fromkeys(gaps, Decision.OFFLOAD)


def _position(uses: Mapping[str, list[Use]], gap: Gap) -> int:
    return uses[gap.buffer][gap.use].position
