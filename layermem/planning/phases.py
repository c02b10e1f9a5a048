"""Training steps whose forward and backward ops alternate: the whole step in slices of the batch (graph/slices.py).

    ops      data   f1 f2 b2 b1   f1 f2 b2 b1   f1 f2 b2 b1   updates         f1: a forward op of one slice
    phases   [     1           ] [     2     ] [          3         ]         each begins with forward ops

Slices have the same ops, so recomputation is planned for the first slice, and the others follow it.  A step without
slices, or with slices in its first layers only, has one phase.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from layermem.graph.ops import FORWARD, Graph, Op


def forward_first(graph: Graph, forward: Iterable[Op]) -> list[str]:
    """Names of all ops, phase by phase: first those of `forward`, in this order, then the others in the graph's
    order."""
    if len(graph.phases) == 1:
        return [op.name for op in forward] + graph.names_after_forward
    rank = {op.name: i for i, op in enumerate(forward)}
    order: list[str] = []
    for ops in graph.phases:
        order += sorted((op.name for op in ops if op.kind == FORWARD), key=lambda name: rank[name])
        order += [op.name for op in ops if op.kind != FORWARD]
    return order


def with_later_slices(graph: Graph, segments: Sequence[Sequence[Op]]) -> list[list[Op]]:
    """`segments` of the forward ops of the first slice, with the same ops of later slices added to each."""
    if not graph.later_slices:
        return [list(ops) for ops in segments]
    followers: dict[str, list[Op]] = {}
    for name, model in graph.later_slices.items():
        op = graph.by_name[name]
        if op.kind == FORWARD:
            followers.setdefault(model, []).append(op)
    return [[each for op in ops for each in (op, *followers.get(op.name, ()))] for ops in segments]
