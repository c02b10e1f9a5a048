"""Which of the fused updates that a graph offers save memory (graph/fused_update.py).

Apart, the weight gradient is live between its two ops; fused, x and dy stay live until the weights have been read, and
the workspace beside them.  Where these are no larger than the gradient, the fused op needs less memory whatever runs
between the two.
"""

from __future__ import annotations

from layermem.graph.ops import Graph, Op


def with_fused_updates(graph: Graph) -> Graph:
    """`graph` with every fused update that saves memory in place: the form that needs the least memory."""
    return graph.with_fused_updates(frozenset(op.name for op in graph.fused_updates if saves_memory(graph, op)))


def saves_memory(graph: Graph, fused: Op) -> bool:
    """Whether what `fused` keeps live is no larger than the gradients that it does without."""
    gradients = {b for name in fused.covers for b in graph.by_name[name].touches if b not in fused.touches}
    kept_live = fused.workspace_bytes + sum(graph.buffers[b].nbytes for b in fused.reads)
    return kept_live <= sum(graph.buffers[b].nbytes for b in gradients)
