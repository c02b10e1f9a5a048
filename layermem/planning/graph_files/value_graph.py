"""The values of a graph file as a graph: a node per value, an edge where a function reads one and writes the other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from layermem import _native
from layermem.errors import InputError
from layermem.planning.graph_files.text_format import GraphFile


class ValueGraph:
    """The values of a graph file, numbered in topological order, and what a planner needs to know of them."""

    def __init__(self, graph: GraphFile):
        self.graph = graph
        self.writer = {v: i for i, f in enumerate(graph.forward) for v in f.writes if graph.variables[v].is_value}
        self.variables = self._topological()
        self.node = {variable: i for i, variable in enumerate(self.variables)}
        self.before = [[self.node[v] for v in self._reads(variable)] for variable in self.variables]
        self.after: list[list[int]] = [[] for _ in self.variables]
        for node, reads in enumerate(self.before):
            for read in reads:
                self.after[read].append(node)
        self.bytes = [graph.variables[v].bytes for v in self.variables]
        self.costs = [graph.forward[self.writer[v]].cost for v in self.variables]

    @property
    def total_bytes(self) -> int:
        """2 M(V): every value and every gradient at once."""
        return 2 * sum(self.bytes)

    @cached_property
    def native(self) -> Any:
        edges = [(read, node) for node, reads in enumerate(self.before) for read in reads]
        return _native.StepGraph.value_gradients([float(c) for c in self.costs], self.bytes, edges)

    def formula_peak(self, chain: Sequence[Sequence[int]]) -> int:
        """max M_i of a chain of lower sets, of nodes: M(U) + 2 M(V_i) + gradients and values that V_i's need."""
        peak, last, kept = 0, set[int](), set[int]()
        for members in chain:
            lower = set(members)
            read = {w for v in lower for w in self.after[v]} - lower
            beside = {u for w in (w for v in lower for w in self.after[v]) for u in self.before[w]} - lower
            use = self._sum(kept) + 2 * self._sum(lower - last) + self._sum(read) + self._sum(beside)
            kept |= {v for v in lower if any(w not in lower for w in self.after[v])}
            peak, last = max(peak, use), lower
        return peak

    def _sum(self, nodes: set[int]) -> int:
        return sum(self.bytes[v] for v in nodes)

    def _reads(self, variable: int) -> list[int]:
        reads = self.graph.forward[self.writer[variable]].reads
        return sorted({v for v, _ in reads if v in self.writer}, key=[v for v, _ in reads].index)

    def _topological(self) -> list[int]:
        """Depth first: a branch runs to its end before the next one begins."""
        order: list[int] = []
        state: dict[int, bool] = {}  # False while its inputs are visited, then True
        for root in self.writer:
            stack = [root]
            while stack:
                variable = stack[-1]
                if variable in state:
                    stack.pop()
                    if not state[variable]:
                        state[variable] = True
                        order.append(variable)
                    continue
                state[variable] = False
                for read in reversed(self._reads(variable)):
                    if state.get(read) is False:
                        raise self._circle(read)
                    if read not in state:
                        stack.append(read)
        return order

    def _circle(self, variable: int) -> InputError:
        line = self.graph.forward[self.writer[variable]].line
        what = f"variable {variable} depends on itself; a forward pass has no circles"
        return InputError(what, path=self.graph.path, line=line)
