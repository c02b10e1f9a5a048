"""Strategies that only reuse bytes: Caffe's (none), and liveness."""

from __future__ import annotations

from layermem.graph.ops import Graph
from layermem.planning.base import INPLACE, REUSE, Decision, Gap, Hints, Plan, PlanEvaluator, program_order, strategy
from layermem.planning.costs import Costs


@strategy("caffe", description="keep the data and diff of every blob for the whole run (BVLC Caffe); the baseline")
def caffe(graph: Graph, costs: Costs, budget: int | None, evaluator: PlanEvaluator, hints: Hints) -> Plan:
    # Bytes are shared only where the net names one blob twice (in place), and nothing is ever given back.
    order = program_order(graph)
    return Plan("caffe", order, {Gap(buffer, -1): Decision.KEEP for buffer in graph.buffers}, INPLACE)


@strategy(
    "liveness", description="allocate at first use, recycle after the last (SINGA's graph mode, with nothing exempt)"
)
def liveness(graph: Graph, costs: Costs, budget: int | None, evaluator: PlanEvaluator, hints: Hints) -> Plan:
    return Plan("liveness", program_order(graph), {}, REUSE)
