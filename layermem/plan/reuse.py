"""Strategies that only reuse bytes: Caffe's (none), and liveness."""

from __future__ import annotations

from layermem.graph.ops import Graph
from layermem.plan.base import INPLACE, REUSE, Fate, Gap, Peak, Plan, ops_in_order, program_order, strategy, uses_of
from layermem.plan.costs import Costs


@strategy("caffe", says="keep the data and diff of every blob for the whole run (BVLC Caffe); the baseline")
def caffe(graph: Graph, costs: Costs, budget: int | None, peak: Peak) -> Plan:
    # Bytes are shared only where the net names one blob twice (in place), and nothing is ever given back.
    order = program_order(graph)
    uses = uses_of(ops_in_order(graph, order))
    last = {Gap(buffer, len(found) - 1): Fate.KEEP for buffer, found in uses.items()}
    return Plan("caffe", order, last, INPLACE)


@strategy("liveness", says="allocate at first use, recycle after the last (SINGA's graph mode, with nothing exempt)")
def liveness(graph: Graph, costs: Costs, budget: int | None, peak: Peak) -> Plan:
    return Plan("liveness", program_order(graph), {}, REUSE)
