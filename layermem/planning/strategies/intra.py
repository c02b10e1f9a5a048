"""Layrub's intra-layer reuse: a layer's gradients are written over its activations, wherever backward permits it.

source  Layrub (Liu et al., PPoPP 2018; TACO 15(3))
"""

from __future__ import annotations

from layermem.graph.ops import Graph
from layermem.planning.costs import Costs
from layermem.planning.hints import Hints
from layermem.planning.plan import INTRA, Plan, program_order
from layermem.planning.registry import PlanEvaluator, strategy


@strategy(
    "intra",
    description="write gradients over activation data (Layrub's intra-layer reuse)",
    order=10,
    priority=20,
    candidate_of_auto=False,  # the first plan that `auto` tries needs no more bytes
)
def intra(graph: Graph, costs: Costs, budget_bytes: int | None, evaluator: PlanEvaluator, hints: Hints) -> Plan:
    return Plan("intra", program_order(graph), {}, INTRA)
