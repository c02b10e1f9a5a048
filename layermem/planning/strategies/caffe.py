"""BVLC Caffe's memory: every blob keeps its data and diff for the whole run.  The baseline of all comparisons.

source  BVLC Caffe, src/caffe/net.cpp and blob.cpp
"""

from __future__ import annotations

from layermem.graph.ops import Graph
from layermem.planning.costs import Costs
from layermem.planning.hints import Hints
from layermem.planning.plan import INPLACE, Decision, Gap, Plan, program_order
from layermem.planning.registry import PlanEvaluator, strategy


@strategy(
    "caffe",
    description="keep the data and diff of every blob for the whole run (BVLC Caffe); the baseline",
    order=110,
    suggest_when_over_budget=False,
    candidate_of_auto=False,
    other_graphs="caffe",
)
def caffe(graph: Graph, costs: Costs, budget_bytes: int | None, evaluator: PlanEvaluator, hints: Hints) -> Plan:
    """Share bytes only if the net names one blob twice (in place); free none."""
    return Plan("caffe", program_order(graph), {Gap(buffer, -1): Decision.KEEP for buffer in graph.buffers}, INPLACE)
