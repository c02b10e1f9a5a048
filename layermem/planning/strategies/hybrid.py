"""Layrub's intra- and inter-layer reuse together; if necessary, optimizer state and parameters are on the host too.

source  Layrub (Liu et al., PPoPP 2018; TACO 15(3))
"""

from __future__ import annotations

from dataclasses import replace

from layermem.graph.ops import Graph
from layermem.planning.costs import Costs
from layermem.planning.hints import Hints
from layermem.planning.offloading import (
    OFFLOADED_STATE,
    HostBudget,
    activations,
    crossing_gaps,
    offload_state,
    with_longest_copy_lead,
)
from layermem.planning.plan import INTRA, Plan, program_order
from layermem.planning.registry import PlanEvaluator, strategy


@strategy(
    "hybrid",
    description="intra and inter together, parameters and optimizer state on the host if need be (Layrub)",
    order=30,
    priority=50,
    offloads=True,
)
def hybrid(graph: Graph, costs: Costs, budget_bytes: int | None, evaluator: PlanEvaluator, hints: Hints) -> Plan:
    plan = Plan("hybrid", program_order(graph), {}, INTRA)
    for kinds in OFFLOADED_STATE:
        host = HostBudget(graph, hints)
        state = offload_state(graph, graph.uses, kinds, host)
        decisions = {**crossing_gaps(graph, activations(graph), host), **state}
        plan = with_longest_copy_lead(replace(plan, decisions=decisions), budget_bytes, evaluator, hints)
        if budget_bytes is not None and evaluator.live_bytes(plan) <= budget_bytes:
            break
    return plan
