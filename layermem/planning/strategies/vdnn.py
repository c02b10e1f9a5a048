"""vDNN: the inputs of all layers, or of convolutions alone, are on the host from forward to backward.

source  Rhu et al., "vDNN: Virtualized deep neural networks for scalable, memory-efficient neural network design",
        MICRO 2016 (its policies vDNN_all and vDNN_conv)
"""

from __future__ import annotations

from collections.abc import Sequence

from layermem.graph.ops import DATA, FORWARD, Graph, Op
from layermem.ops import Conv, ConvNd
from layermem.planning.costs import Costs
from layermem.planning.hints import Hints
from layermem.planning.offloading import HostBudget, crossing_gaps, with_longest_copy_lead
from layermem.planning.plan import REUSE, Plan, program_order
from layermem.planning.registry import PlanEvaluator, strategy


@strategy(
    "vdnn-all",
    description="offload the input of every layer (vDNN_all)",
    order=40,
    priority=80,
    suggest_when_over_budget=False,
    offloads=True,
)
def vdnn_all(graph: Graph, costs: Costs, budget_bytes: int | None, evaluator: PlanEvaluator, hints: Hints) -> Plan:
    return _offload_inputs("vdnn-all", graph, graph.of_kind(FORWARD), budget_bytes, evaluator, hints)


@strategy(
    "vdnn-conv",
    description="offload the inputs of convolutions (vDNN_conv)",
    order=50,
    priority=90,
    suggest_when_over_budget=False,
    offloads=True,
)
def vdnn_conv(graph: Graph, costs: Costs, budget_bytes: int | None, evaluator: PlanEvaluator, hints: Hints) -> Plan:
    convolutions = [op for op in graph.of_kind(FORWARD) if isinstance(op.record, (Conv, ConvNd))]
    return _offload_inputs("vdnn-conv", graph, convolutions, budget_bytes, evaluator, hints)


def _offload_inputs(
    name: str, graph: Graph, ops: Sequence[Op], budget_bytes: int | None, evaluator: PlanEvaluator, hints: Hints
) -> Plan:
    inputs = {b for op in ops for b in op.reads if graph.buffers[b].kind == DATA}
    decisions = crossing_gaps(graph, inputs, HostBudget(graph, hints))
    return with_longest_copy_lead(Plan(name, program_order(graph), decisions, REUSE), budget_bytes, evaluator, hints)
