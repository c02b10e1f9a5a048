"""Checkpoints about every sqrt(n)-th byte; the ops between are recomputed.  Without a budget, or if no plan of the
search fits it, the result is the plan that needs the fewest bytes.

source  Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016; mxnet-memonger
"""

from __future__ import annotations

from layermem.graph.ops import Graph
from layermem.planning.costs import Costs
from layermem.planning.hints import Hints
from layermem.planning.plan import Plan
from layermem.planning.recomputation import forward_ops, segments_to_plan
from layermem.planning.registry import PlanEvaluator, strategy
from layermem.planning.sublinear_search import sublinear_candidates


@strategy(
    "sublinear",
    description="keep segment ends, recompute between them (Chen et al. 2016, mxnet-memonger)",
    order=60,
    priority=30,
)
def sublinear(graph: Graph, costs: Costs, budget_bytes: int | None, evaluator: PlanEvaluator, hints: Hints) -> Plan:
    keep_all = segments_to_plan(graph, [forward_ops(graph)], "sublinear", hints=hints)
    if budget_bytes is not None and evaluator.live_bytes(keep_all) <= budget_bytes:
        return keep_all
    candidates = sublinear_candidates(graph, costs, evaluator, hints)
    fitting = [c for c in candidates if budget_bytes is not None and c.live_bytes <= budget_bytes]
    if fitting:
        return min(fitting, key=lambda c: c.recompute_seconds).plan
    return min(candidates, key=lambda c: c[:2]).plan
