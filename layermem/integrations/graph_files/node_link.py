"""Reads, runs and checks computational graphs in node-link JSON, the form of Checkmate's and Moccasin's graphs.

    nodes   `cost_ram`, bytes of the output, and `cost_cpu`, cost of one run; `backward` in training graphs.  Random
            layered graphs have `out_cost` and `duration` instead
    links   `source`, `target` (or "0", "1"): the target reads the output of the source; numbers of nodes, from 0
    graph   `name`, and `order`, an order of all nodes in which they can run

A sequence of node numbers runs each node at least once.  An output is in memory from its run to the last run that reads
it before the next run of the same node; a run needs its inputs and its output at the same time.

source  github.com/haoming-codes/moccasin, data/ and src/moccasin/util.py (form and measure of memory); no code is taken
        from it
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

from layermem.errors import InputError
from layermem.utils.input_files import read_lines
from layermem.utils.units import LIMIT_BYTES, format_bytes

REMEDY = "give node-link JSON as networkx writes it, with whole numbers cost_ram and cost_cpu of each node"
MAX_COST = 10**15  # FLOPs of a node may exceed 10**12


@dataclass(frozen=True)
class NodeLinkGraph:
    """`bytes` and `cost` of every node, the nodes that each `reads`, and an `order` in which all can run."""

    name: str
    bytes: tuple[int, ...]
    cost: tuple[int, ...]
    reads: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]

    @property
    def total_cost(self) -> int:
        """The cost of running every node once."""
        return sum(self.cost)

    @cached_property
    def order_bytes(self) -> int:
        """The peak of the given order, without recomputation, to which percentages of budgets refer."""
        return run_sequence(self, self.order)[0]

    @cached_property
    def least_bytes(self) -> int:
        """The bytes of the largest run: a lower bound of the peak of all sequences."""
        return max(self.bytes[v] + sum(self.bytes[u] for u in reads) for v, reads in enumerate(self.reads))


def read_node_link(path: str | Path) -> NodeLinkGraph:
    """Read the graph in the file at `path`; InputError if it is not one."""
    return parse_node_link("\n".join(read_lines(path, what="graph file")), str(path))


def parse_node_link(text: str, path: str | None = None) -> NodeLinkGraph:
    """Parse the graph that `text` describes."""
    try:
        return _graph(json.loads(text))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise InputError(f"is not a graph ({error}); {REMEDY}", path=path) from None


def _graph(values: Any) -> NodeLinkGraph:
    nodes, links, facts = values["nodes"], values["links"], values.get("graph", {})
    sizes = tuple(_number(node, ("cost_ram", "out_cost"), LIMIT_BYTES) for node in nodes)
    costs = tuple(_number(node, ("cost_cpu", "duration"), MAX_COST) for node in nodes)
    reads: list[list[int]] = [[] for _ in nodes]
    for link in links:
        source, target = (_number(link, names, len(nodes)) for names in (("source", "0"), ("target", "1")))
        if source not in reads[target]:
            reads[target].append(source)
    order = tuple(facts.get("order") or _topological(reads))
    if sorted(order) != list(range(len(nodes))):
        raise ValueError("its order does not name every node once")
    if not nodes:
        raise ValueError("it has no nodes")
    if sum(sizes) >= LIMIT_BYTES:
        raise ValueError(f"its outputs take more than {format_bytes(LIMIT_BYTES)}, which no machine has")
    graph = NodeLinkGraph(str(facts.get("name", "")), sizes, costs, tuple(map(tuple, reads)), order)
    run_sequence(graph, order)
    return graph


def _number(values: Any, names: Sequence[str], limit: int) -> int:
    value = next((values[name] for name in names if name in values), None)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < limit:
        raise ValueError(f"{' or '.join(names)} is {value!r}")
    return value


def _topological(reads: Sequence[Sequence[int]]) -> list[int]:
    """All nodes, each after its inputs, the lowest number first."""
    if all(read < node for node, each in enumerate(reads) for read in each):
        return list(range(len(reads)))
    raise ValueError("its nodes are not in an order in which they can run, and `order` gives none")


def run_sequence(graph: NodeLinkGraph, sequence: Sequence[int]) -> tuple[int, int]:
    """(peak bytes, cost) of a sequence; ValueError if a node reads a node that has not run, or never runs."""
    until = last_reads(graph, sequence)
    if len(set(sequence)) < len(graph.bytes):
        raise ValueError("not every node runs")
    change = [0] * (len(sequence) + 1)
    for position, node in enumerate(sequence):
        change[position] += graph.bytes[node]
        change[until[position] + 1] -= graph.bytes[node]
    return max(accumulate(change)), sum(graph.cost[node] for node in sequence)


def last_reads(graph: NodeLinkGraph, sequence: Sequence[int]) -> list[int]:
    """For each run, the last position at which its output is read; its own position if it is never read."""
    last: dict[int, int] = {}  # position of the latest run of each node
    until: list[int] = []
    for position, node in enumerate(sequence):
        for read in graph.reads[node]:
            if read not in last:
                raise ValueError(f"node {node} reads node {read}, which has not run")
            until[last[read]] = position
        last[node] = position
        until.append(position)
    return until


def sequence_text(graph: NodeLinkGraph, sequence: Sequence[int]) -> str:
    """Lines `compute NODE`, and `forget NODE` after the last run that reads an output."""
    gone: dict[int, list[int]] = {}
    for node, position in zip(sequence, last_reads(graph, sequence)):
        gone.setdefault(position, []).append(node)
    lines = []
    for position, node in enumerate(sequence):
        lines += [f"compute {node}", *(f"forget {each}" for each in sorted(gone.get(position, ())))]
    return "".join(f"{line}\n" for line in lines)
