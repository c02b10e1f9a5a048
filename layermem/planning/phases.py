"""Training steps whose forward and backward ops alternate: the whole step in slices of the batch (graph/slices.py).

    ops      data   f1 f2 b2 b1   f1 f2 b2 b1   f1 f2 b2 b1   updates         f1: a forward op of one slice
    phases   [     1           ] [     2     ] [          3         ]         each begins with forward ops

Slices have the same ops, so what recomputes is planned for the first slice, and the others follow it.  A step that is
not sliced, or sliced in its first layers only, has one phase.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from layermem.graph.ops import BACKWARD, FORWARD, Graph, Op


def phases(graph: Graph) -> list[list[Op]]:
    """The ops of `graph` in order; a phase begins with each forward op that follows a backward op."""
    found: list[list[Op]] = [[]]
    seen_backward = False
    for op in graph.ops:
        if op.kind == FORWARD and seen_backward:
            found.append([])
            seen_backward = False
        seen_backward |= op.kind == BACKWARD
        found[-1].append(op)
    return found


def forward_first(graph: Graph, forward: Iterable[Op]) -> list[str]:
    """Names of all ops, phase by phase: first the forward ops, in the order of `forward`, then the others in that of
    the graph."""
    rank = {op.name: i for i, op in enumerate(forward)}
    order: list[str] = []
    for ops in phases(graph):
        order += sorted((op.name for op in ops if op.kind == FORWARD), key=lambda name: rank[name])
        order += [op.name for op in ops if op.kind != FORWARD]
    return order


def later_slices(graph: Graph) -> dict[str, str]:
    """Names of the forward and backward ops of later slices -> name of the same op in the first one; empty for a step
    of one phase."""
    if len(phases(graph)) == 1:
        return {}
    first = {_base(op): op.name for op in graph.ops if op.record.part is not None and op.record.part.is_first}
    return {op.name: first[_base(op)] for op in graph.ops if op.record.part is not None and not op.record.part.is_first}


def with_later_slices(graph: Graph, segments: Sequence[Sequence[Op]]) -> list[list[Op]]:
    """`segments` of the forward ops without later slices, with each of these where its model is."""
    followers: dict[str, list[Op]] = {}
    for name, model in later_slices(graph).items():
        op = graph.by_name[name]
        if op.kind == FORWARD:
            followers.setdefault(model, []).append(op)
    return [[each for op in ops for each in (op, *followers.get(op.name, ()))] for ops in segments]


def _base(op: Op) -> str:
    """The name of the op that `op` is a slice of."""
    return op.name.rpartition("@")[0]
