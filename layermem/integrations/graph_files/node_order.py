"""Plans recomputation for a node-link graph: every node may run any number of times, in any order that its links
allow.

order    lowers the peak by changing the order of nodes (native/planning/nested/polish.h); what fits then runs once
split    splits residencies where memory is full (splitting.py), in that order and in the given one
search   runs the native lookahead planner (native/planning/nested) from that order and from the sequences of `split`
polish   applies simulated annealing to the best sequence, in which nodes may change places too
"""

from __future__ import annotations

from dataclasses import replace

from layermem import _native
from layermem.integrations.graph_files.nested import edits_of
from layermem.integrations.graph_files.node_link import NodeLinkGraph
from layermem.integrations.graph_files.splitting import split_order
from layermem.planning.settings import SETTINGS


def plan_order(graph: NodeLinkGraph, budget_bytes: int) -> list[int] | None:
    """The cheapest sequence found whose peak is within `budget_bytes`; None if none was found."""
    if budget_bytes >= graph.order_bytes:
        return list(graph.order)
    native, ops = _native_graph(graph)
    nodes, edits = {op: node for node, op in enumerate(ops)}, edits_of(len(ops))
    order = [ops[node] for node in graph.order]
    order = _native.lowest_order(native, order, 0, budget_bytes, SETTINGS.edits_of_order * edits, SETTINGS.native)
    lowest = replace(graph, order=tuple(nodes[op] for op in order))
    if lowest.order_bytes <= budget_bytes:
        return list(lowest.order)
    splits = [split_order(each, budget_bytes) for each in {lowest.order: lowest, graph.order: graph}.values()]
    starts = [[ops[node] for node in split] for split in splits if split is not None]
    planner = _native.NestedPlanner(native, order, list(range(len(ops))), [], len(ops), 0, SETTINGS.native)
    found = planner.plan(budget_bytes, starts, SETTINGS.graph_steps_share, edits, True)
    return None if found is None else [nodes[op] for op in found.order]


def _native_graph(graph: NodeLinkGraph) -> tuple[_native.LayoutGraph, list[int]]:
    """The graph with one output per node, and the op of each node, which can run again."""
    native, ops = _native.LayoutGraph(), [0] * len(graph.bytes)
    for node, nbytes in enumerate(graph.bytes):
        native.add_buffer(str(node), nbytes, False, 0.0, 0.0)
    for node in graph.order:
        reads, cost = list(graph.reads[node]), float(graph.cost[node])
        again = native.add_op(str(node), reads, [], [node], [], 0, cost)
        ops[node] = native.add_op(str(node), reads, [], [node], [], 0, cost, again)
    return native, ops
