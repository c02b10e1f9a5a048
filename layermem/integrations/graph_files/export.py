"""Exports a training graph as a graph file: a function per layer, and the backward of each.

blob        a variable `_`; tops of a layer that reads nothing (data, labels) are network inputs, named by a number
parameter   a variable `/name`
stash       part of its function, as in Chainer, and so not written
backward    all backward ops of a layer are one function; without any, the function reads and adds nothing
seconds     an attribute of each function if the costs of ops are known: of its op, or of all ops of a backward
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from layermem.graph.ops import BACKWARD, DATA, DIFF, FORWARD, GRADIENT, PARAMETER, Graph, Op, unique
from layermem.integrations.graph_files.text_format import SECONDS, FileFunction, GraphFile, Variable
from layermem.ops import Fill
from layermem.planning.costs import Costs, as_written


def graph_file(graph: Graph, costs: Costs | None = None) -> GraphFile:
    """Describe one step of `graph`, with costs of its functions by `costs`; updates are left out."""
    forward = [op for op in graph.ops if op.kind == FORWARD and op.node >= 0]
    inputs = [blob for op in forward if not op.reads for blob in op.writes if graph.buffers[blob].kind == DATA]
    number = {blob: str(i) for i, blob in enumerate(inputs)}
    names, layers = arrays_of(graph), layers_of(graph)
    ids = {name: i for i, name in enumerate(names)}
    variables = [Variable(graph.buffers[name].nbytes, _name(graph, name, number)) for name in names]
    gradients = _gradients(graph)
    steps = backward_of(graph)
    functions = [replace(_forward(op, ids), attributes=_seconds([op], costs)) for op in layers]
    backwards = [
        replace(_backward(op, steps[op.node_run], ids, gradients), attributes=_seconds(steps[op.node_run], costs))
        for op in layers
    ]
    return GraphFile(tuple(variables), tuple(functions), tuple(backwards))


def arrays_of(graph: Graph) -> list[str]:
    """The buffers of `graph` that are variables of its graph file, in the order of their numbers."""
    return [name for name, buffer in graph.buffers.items() if buffer.kind in (DATA, PARAMETER)]


def layers_of(graph: Graph) -> list[Op]:
    """The forward ops of `graph` that are functions of its graph file, in the order of their numbers."""
    forward = (op for op in graph.ops if op.kind == FORWARD and op.node >= 0 and op.reads)
    return [op for op in forward if any(graph.buffers[blob].kind in (DATA, PARAMETER) for blob in op.writes)]


def backward_of(graph: Graph) -> Mapping[tuple[int, ...], list[Op]]:
    """The ops that are the backward function of each layer, by the run of its node; none for other runs."""
    steps: defaultdict[tuple[int, ...], list[Op]] = defaultdict(list)
    for op in graph.ops:
        if op.kind == BACKWARD:
            steps[op.node_run].append(op)
    return steps


def _seconds(ops: Sequence[Op], costs: Costs | None) -> dict[str, float]:
    return {} if costs is None else {SECONDS: as_written(sum(costs.op(op) for op in ops))}


def _name(graph: Graph, name: str, number: dict[str, str]) -> str:
    if graph.buffers[name].kind == PARAMETER:
        return "/" + "_".join(name.split())
    return number.get(name, "_")


def _gradients(graph: Graph) -> dict[str, str]:
    """Map each gradient buffer to the buffer that it is the gradient of."""
    return {name: name.removesuffix(".diff") for name, b in graph.buffers.items() if b.kind in (DIFF, GRADIENT)}


def _forward(op: Op, ids: dict[str, int]) -> FileFunction:
    reads = tuple((ids[b], "_") for b in (*op.reads, *op.updates) if b in ids)
    return FileFunction("forward", op.layer_type, reads, tuple(ids[b] for b in op.writes if b in ids))


def _backward(op: Op, steps: list[Op], ids: dict[str, int], gradients: dict[str, str]) -> FileFunction:
    """The backward function of a layer: outside buffers that its ops read, and gradients that they leave."""
    steps = [step for step in steps if not isinstance(step.record, Fill)]
    touched = unique(b for step in steps for b in step.reads)
    reads = [(ids[gradients[b]], "gradient") for b in touched if gradients.get(b) in op.writes]
    reads += [(ids[b], "input") for b in touched if b in ids and b not in op.writes]
    reads += [(ids[b], "output") for b in touched if b in ids and b in op.writes]
    written = unique(gradients[b] for step in steps for b in (*step.writes, *step.updates) if b in gradients)
    writes = tuple(ids[b] for b in written if b in ids and b not in op.writes)
    return FileFunction("backward", op.layer_type, tuple(reads), writes)
