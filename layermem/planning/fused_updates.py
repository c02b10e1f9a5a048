"""Selects the offered fused updates of a graph that save memory (graph/rewrite.py).

As two ops, wgrad and the update hold the weight gradient from one to the other.  As one op, they hold x, dy and the
workspace until the weights have been read.  If these are no larger than the gradient, the fused op needs less memory,
whatever ops run between the two.
"""

from __future__ import annotations

from layermem.graph.ops import Graph, Op


def with_fused_updates(graph: Graph) -> Graph:
    """`graph` with every fused update that saves memory: the form that needs the least memory."""
    return graph.with_fused_updates(frozenset(op.name for op in graph.fused_updates if saves_memory(graph, op)))


def saves_memory(graph: Graph, fused: Op) -> bool:
    """Whether the operands that `fused` keeps live are no larger than the gradients that it avoids."""
    gradients = {b for name in fused.covers for b in graph.by_name[name].touches if b not in fused.touches}
    kept_live = fused.workspace_bytes + sum(graph.buffers[b].nbytes for b in fused.reads)
    return kept_live <= sum(graph.buffers[b].nbytes for b in gradients)
