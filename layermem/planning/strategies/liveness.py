"""Reuse by lifetime: a buffer has bytes from its first write to its last read.

source  Apache SINGA, whose graph mode frees a block after its last use
"""

from __future__ import annotations

from layermem.graph.ops import Graph
from layermem.planning.costs import Costs
from layermem.planning.hints import Hints
from layermem.planning.plan import REUSE, Plan, program_order
from layermem.planning.registry import PlanEvaluator, strategy


@strategy(
    "liveness",
    description="allocate at first use, recycle after the last (SINGA's graph mode, with nothing exempt)",
    order=120,
    priority=10,
    candidate_of_auto=False,  # the first plan that `auto` tries needs no more bytes
)
def liveness(graph: Graph, costs: Costs, budget_bytes: int | None, evaluator: PlanEvaluator, hints: Hints) -> Plan:
    return Plan("liveness", program_order(graph), {}, REUSE)
