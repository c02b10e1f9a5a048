"""A schedule of another program for the graph file of a net, as a plan of that net.

    compute F      of a forward: the op of this layer (export.py); from the second time on, a recomputation
    compute F k    of a backward: the ops of the layer that add to these gradients, each once
    forget V       no op: a plan frees bytes after the last use before they are written again

Ops that a graph file does not have, such as data, fills and updates, run as soon as all is there that they read.  Two
ops that touch a buffer, one of which writes it, stay in the order of the net: so sums have one order, and bits are
those of every other plan.
"""

from __future__ import annotations

from layermem.errors import InputError
from layermem.graph.ops import Graph, Op, unique
from layermem.integrations.graph_files.export import arrays_of, backward_of, graph_file, layers_of
from layermem.integrations.graph_files.schedule_text import run_schedule
from layermem.planning.plan import INTRA, Plan


def plan_of_schedule(graph: Graph, text: str, path: str | None = None) -> Plan:
    """The plan that runs a schedule of the graph file of `graph`; InputError if the schedule cannot run."""
    file = graph_file(graph)
    try:
        run_schedule(file, text)
    except InputError as error:
        raise error.at(path=path) from None
    names, layers = arrays_of(graph), layers_of(graph)
    by_run = backward_of(graph)
    steps = [by_run[layer.node_run] for layer in layers]
    order = _Order(graph, {op.name for ops in (layers, *steps) for op in ops})
    for number, line in enumerate(text.splitlines(), 1):
        verb, *words = line.split()
        if verb != "compute":
            continue
        index, *chosen = map(int, words)
        if index < len(layers):
            if layers[index].name in order.done and layers[index].recompute is None:
                what = f"computes '{layers[index].layer_name}' a second time, which gives other values; keep them"
                raise InputError(what, path=path, line=number)
            order.run(layers[index])
            continue
        writes = file.backward[index - len(layers)].writes
        gradients = {f"{names[writes[k]]}.diff" for k in (chosen or range(len(writes)))}
        for op in steps[index - len(layers)]:
            if op.name not in order.done and not gradients.isdisjoint((*op.writes, *op.updates)):
                order.run(op)
    for op in graph.ops:
        if op.name not in order.done:
            order.run(op)
    return Plan("schedule", tuple(order.names), {}, INTRA, fingerprint=graph.fingerprint)


class _Order:
    """The ops that have run.  `listed` are those of the graph file; others run by themselves."""

    def __init__(self, graph: Graph, listed: set[str]):
        self.names: list[str] = []
        self.done: set[str] = set()
        self.by_name, self.listed = graph.by_name, listed
        self.before: dict[str, tuple[str, ...]] = {}
        self.after: dict[str, list[str]] = {op.name: [] for op in graph.ops}
        written: dict[str, str] = {}  # by buffer, the op that wrote it last, and those that have read it since
        read: dict[str, list[str]] = {}
        for op in graph.ops:
            inputs, outputs = (*op.reads, *op.updates), (*op.writes, *op.updates)
            before = [written[b] for b in (*inputs, *outputs) if b in written]
            before += [name for b in outputs for name in read.get(b, ())]
            self.before[op.name] = unique(before)
            for name in self.before[op.name]:
                self.after[name].append(op.name)
            for buffer in outputs:
                written[buffer], read[buffer] = op.name, []
            for buffer in inputs:
                read.setdefault(buffer, []).append(op.name)
        self.missing = {name: len(names) for name, names in self.before.items()}

    def run(self, op: Op) -> None:
        """Run `op` after what it waits for, and before what waits for it alone."""
        for name in self.before[op.name]:
            if name not in self.done:
                self.run(self.by_name[name])
        self.names.append(op.name)
        if op.name in self.done:
            return
        self.done.add(op.name)
        for name in self.after[op.name]:
            self.missing[name] -= 1
            if not self.missing[name] and name not in self.listed and name not in self.done:
                self.run(self.by_name[name])
