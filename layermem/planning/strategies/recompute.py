"""Recomputation by dynamic programming over lower sets, with three families of lower sets.

    recompute          ancestors, complements of descendants and prefixes: near the optimum in a fraction of a second
    recompute-exact    all lower sets, within a limit of steps for all budgets together
    recompute-approx   the paper's family: each node with its ancestors

source  Kusumoto et al., "A Graph Theoretic Framework of Recomputation Algorithms for Memory-Efficient
        Backpropagation", NeurIPS 2019
"""

from __future__ import annotations

from layermem.graph.ops import Graph
from layermem.planning.costs import Costs
from layermem.planning.hints import Hints
from layermem.planning.lower_sets import lower_set_plan
from layermem.planning.plan import Plan
from layermem.planning.registry import PlanEvaluator, strategy


@strategy(
    "recompute",
    description="keep boundaries of lower sets, recompute between them (Kusumoto et al. 2019, extended)",
    order=70,
    priority=40,
    candidate_of_auto=False,  # `auto` starts from its plans
)
def recompute(graph: Graph, costs: Costs, budget_bytes: int | None, evaluator: PlanEvaluator, hints: Hints) -> Plan:
    return lower_set_plan("recompute", "extended", graph, costs, budget_bytes, evaluator, hints)


@strategy(
    "recompute-exact",
    description="the same over all lower sets, for up to 20 step seconds (counted work, not time)",
    order=80,
    compare_by_default=False,
    suggest_when_over_budget=False,
    candidate_of_auto=False,
)
def recompute_exact(
    graph: Graph, costs: Costs, budget_bytes: int | None, evaluator: PlanEvaluator, hints: Hints
) -> Plan:
    return lower_set_plan("recompute-exact", "exact", graph, costs, budget_bytes, evaluator, hints)


@strategy(
    "recompute-approx",
    description="the same over each op with its ancestors (the paper's ApproxDP)",
    order=90,
    priority=60,
    suggest_when_over_budget=False,
)
def recompute_approx(
    graph: Graph, costs: Costs, budget_bytes: int | None, evaluator: PlanEvaluator, hints: Hints
) -> Plan:
    return lower_set_plan("recompute-approx", "approx", graph, costs, budget_bytes, evaluator, hints)
