"""Layrub's inter-layer reuse: activations, stashes and batches are on the host from forward to backward.

source  Layrub (Liu et al., PPoPP 2018; TACO 15(3))
"""

from __future__ import annotations

from layermem.graph.ops import Graph
from layermem.planning.costs import Costs
from layermem.planning.hints import Hints
from layermem.planning.offloading import HostBudget, activations, crossing_gaps, with_longest_copy_lead
from layermem.planning.plan import REUSE, Plan, program_order
from layermem.planning.registry import PlanEvaluator, strategy


@strategy(
    "inter",
    description="offload every activation between forward and backward (Layrub's inter-layer reuse)",
    order=20,
    priority=70,
    suggest_when_over_budget=False,
    offloads=True,
)
def inter(graph: Graph, costs: Costs, budget_bytes: int | None, evaluator: PlanEvaluator, hints: Hints) -> Plan:
    decisions = crossing_gaps(graph, activations(graph), HostBudget(graph, hints))
    return with_longest_copy_lead(Plan("inter", program_order(graph), decisions, REUSE), budget_bytes, evaluator, hints)
