"""Nested recomputation: any op may run again, any number of times, and its inputs may be recomputed for it.

If an op lacks bytes, the value with the largest bytes x distance of its next use / seconds to recompute it is evicted;
several weights of the three factors are tried (native/planning/nested/).  The search reaches budgets below the minimum
of `recompute`, at which values that segments keep have to be recomputed too.  Annealing improves the result, and
backward ops that leave more bytes than they free are delayed (planning/op_order.py).

source  DTR (Kirisame et al., "Dynamic Tensor Rematerialization", ICLR 2021) with the future known in place of the past;
        annealing as in FastSA (Yoshimura et al. 2023)
"""

from __future__ import annotations

from layermem.graph.ops import Graph
from layermem.planning.costs import Costs
from layermem.planning.fused_updates import with_fused_updates
from layermem.planning.hints import Hints
from layermem.planning.nested_search import nested_planner
from layermem.planning.plan import Plan
from layermem.planning.recomputation import forward_ops, segments_to_plan
from layermem.planning.registry import PlanEvaluator, strategy


@strategy(
    "nested",
    description="recompute any op any number of times, what is needed last first (DTR 2021 with the future known)",
    order=95,
    priority=45,
    fuses_updates=True,
)
def nested(graph: Graph, costs: Costs, budget_bytes: int | None, evaluator: PlanEvaluator, hints: Hints) -> Plan:
    graph = with_fused_updates(graph)
    keep_all = segments_to_plan(graph, [forward_ops(graph)], "nested", hints=hints)
    if budget_bytes is not None and evaluator.live_bytes(keep_all) <= budget_bytes:
        return keep_all
    planner = nested_planner(graph, costs, evaluator, hints)
    plan = planner.plan_within(budget_bytes, "nested", evaluator) if budget_bytes is not None else None
    return plan or planner.min_memory_plan("nested", evaluator)
