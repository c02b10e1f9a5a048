"""The rules of a graph as code, which hold after every pass.

    buffer   has one kind and size, is listed under its name, and is touched by an op unless it outlives the step
    op       has a unique name; each buffer of its roles is in one of reads, writes and updates, and no other one
    view     lies inside its buffer, and all items of a batch are of one batch
    order    a buffer that an op reads was written by an earlier op, or outlives the step
    offer    covers ops of the graph, and touches buffers of the graph

The result of each pass is validated in tests only (step_slicer.py), because a validation takes as long as some passes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from layermem.graph.ops import Graph, Op

is_on = False  # tests/conftest.py


class InvalidGraph(AssertionError):
    """A pass has made a graph that breaks a rule."""


def validated(graph: Graph) -> Graph:
    """Return `graph`; raise InvalidGraph if validation is on and it breaks a rule."""
    if is_on and (found := violations(graph)):
        raise InvalidGraph(f"{graph!r}: {found[0]}")
    return graph


def violations(graph: Graph) -> list[str]:
    """A sentence for each rule that `graph` breaks."""
    return [*_of_names(graph), *_of_buffers(graph), *_of_ops(graph), *_of_order(graph)]


def _of_names(graph: Graph) -> Iterator[str]:
    seen: set[str] = set()
    for op in (*graph.ops, *graph.fused_updates):
        if op.name in seen:
            yield f"two ops are called '{op.name}'"
        seen.add(op.name)
    for fused in graph.fused_updates:
        for name in fused.covers:
            if name not in graph.position:
                yield f"'{fused.name}' covers '{name}', which is no op of the graph"


def _of_buffers(graph: Graph) -> Iterator[str]:
    touched = {name for op in graph.ops for name in op.touches}
    for name, buffer in graph.buffers.items():
        if buffer.name != name:
            yield f"buffer '{buffer.name}' is listed as '{name}'"
        if buffer.nbytes < 0:
            yield f"buffer '{name}' has {buffer.nbytes} bytes"
        if not buffer.persistent and name not in touched:
            yield f"no op touches buffer '{name}'"


def _of_ops(graph: Graph) -> Iterator[str]:
    for op in (*graph.ops, *graph.fused_updates):
        for each in (op, op.recompute):
            if each is not None:
                yield from _of_op(graph, each)


def _of_op(graph: Graph, op: Op) -> Iterator[str]:
    for name in dict.fromkeys((*op.touches, *op.roles.values())):
        if name not in graph.buffers:
            yield f"'{op.name}' touches '{name}', which is no buffer of the graph"
        declared = op.touches.count(name)
        if declared != 1:
            yield f"'{op.name}' declares '{name}' {declared} times"
        if name not in op.roles.values():
            yield f"'{op.name}' declares '{name}', which none of its roles has"
    shared = {name for name, count in Counter(op.roles.values()).items() if count > 1}  # the first role may write it
    for role in op.accumulates:
        if op.roles.get(role) not in {*op.updates, *shared.intersection(op.writes)}:
            yield f"'{op.name}' adds to its role '{role}', which it does not update"
    for role, items in op.views.items():
        if role not in op.roles:
            yield f"'{op.name}' has a view of '{role}', which is no role of its"
        elif items.first < 0 or items.count < 1 or items.first + items.count > items.items:
            yield f"'{op.name}' has {items} of '{op.roles[role]}'"


def _of_order(graph: Graph) -> Iterator[str]:
    written = {name for name, buffer in graph.buffers.items() if buffer.persistent}
    for op in graph.ops:
        for name in (*op.reads, *op.updates):
            if name not in written:
                yield f"'{op.name}' reads '{name}' before an op writes it"
        written.update((*op.writes, *op.updates))
