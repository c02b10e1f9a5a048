"""The values of a graph file as a graph: a node per value, an edge where a function reads one and writes the other.

What a backward reads beside the gradients of its function's outputs:

    file     the data that the file lists for it, inputs and outputs
    inputs   all inputs of its function and no output, as in the formula of Kusumoto et al. (NeurIPS 2019), whatever the
             file lists: a schedule may then have dropped an output that the file says is read
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from layermem import _native
from layermem.errors import InputError
from layermem.integrations.graph_files.text_format import GraphFile

READS = ("file", "inputs")


class ValueGraph:
    """The values of a graph file, numbered in topological order, and their bytes, costs and edges."""

    def __init__(self, graph: GraphFile, reads: str = "file", op_costs: str = "file"):
        self.graph, self.reads = graph, reads
        self.cost_unit, self.function_costs = graph.costs(op_costs)
        self.writer = {v: i for i, f in enumerate(graph.forward) for v in f.writes if graph.variables[v].is_value}
        self.variables = self._topological()
        self.node = {variable: i for i, variable in enumerate(self.variables)}
        self.before = [[self.node[v] for v in self._reads(variable)] for variable in self.variables]
        self.after: list[list[int]] = [[] for _ in self.variables]
        for node, before in enumerate(self.before):
            for read in before:
                self.after[read].append(node)
        self.readers: dict[int, list[int]] = {v: [] for v in self.variables}  # forward functions, by what they read
        for i, function in enumerate(graph.forward):
            for v in {v for v, _ in function.reads if v in self.readers}:
                self.readers[v].append(i)
        self.bytes = [graph.variables[v].bytes for v in self.variables]
        self.costs = [self.function_costs[self.writer[v]] for v in self.variables]

    @property
    def total_bytes(self) -> int:
        """2 M(V): every value and every gradient at once."""
        return 2 * sum(self.bytes)

    @cached_property
    def native(self) -> _native.StepGraph:
        if self.reads == "inputs":
            edges = [(read, node) for node, reads in enumerate(self.before) for read in reads]
            return _native.StepGraph.value_gradients([float(c) for c in self.costs], self.bytes, edges)
        native = _native.StepGraph()
        for nbytes in self.bytes:  # value v and gradient v belong to node v
            native.add_value(nbytes)
            native.add_gradient(nbytes)
        for node, cost in enumerate(self.costs):
            native.add_node(self.before[node], [node], float(cost))
        for node, cost in reversed(list(enumerate(self.costs))):
            native.add_step(node, self.step_data(node), sorted(set(self.after[node])), [node], float(cost))
        native.finish()
        return native

    def data_of_forward(self, function: int) -> set[int]:
        """Values that a forward function reads."""
        return {v for v, _ in self.graph.forward[function].reads if v in self.writer}

    def data_of_backward(self, function: int) -> set[int]:
        """Values whose data the backward of a forward function reads."""
        if self.reads == "inputs":
            return self.data_of_forward(function)
        return {v for v, kind in self.graph.backward[function].reads if kind != "gradient" and v in self.writer}

    @cached_property
    def with_gradient(self) -> set[int]:
        """Values that get a gradient: given, where nothing reads them, or from a backward that itself gets one.

        The mask of a pooling is read and gets none.
        """
        values: set[int] = set()
        for v in reversed(self.variables):
            runs = (i for i in self.readers[v] if values.intersection(self.graph.forward[i].writes))
            if not self.readers[v] or any(v in self.graph.backward[i].writes for i in runs):
                values.add(v)
        return values

    def has_backward(self, function: int) -> bool:
        """Whether any output of a forward function gets a gradient."""
        return not self.with_gradient.isdisjoint(self.graph.forward[function].writes)

    def is_last_step(self, node: int) -> bool:
        """Whether the backward of the node's own function runs in its step: it has no value to wait for."""
        own = self.writer[self.variables[node]]
        outputs = [self.node[v] for v in self.graph.forward[own].writes if v in self.node]
        return min(outputs) == node and not self.data_of_forward(own)

    def _step_reads(self, node: int) -> set[int]:
        """Values that the backward step of a node reads: for its gradient, and for those of parameters."""
        variable = self.variables[node]
        functions = [*self.readers[variable], *([self.writer[variable]] if self.is_last_step(node) else [])]
        return {v for function in functions for v in self.data_of_backward(function)}

    def step_data(self, node: int) -> list[int]:
        """Nodes whose data the step of a node reads, ascending."""
        if self.reads == "inputs":
            return sorted({read for reader in self.after[node] for read in self.before[reader]})
        return sorted(self.node[v] for v in self._step_reads(node))

    def formula_peak_bytes(self, chain: Sequence[Sequence[int]]) -> int:
        """max M_i of a chain of lower sets, of nodes: M(U) + 2 M(V_i) + gradients and values that V_i's need."""
        peak_bytes, last, kept = 0, set[int](), set[int]()
        for members in chain:
            lower = set(members)
            read = {w for v in lower for w in self.after[v]} - lower
            beside = {u for w in (w for v in lower for w in self.after[v]) for u in self.before[w]} - lower
            nbytes = self._sum(kept) + 2 * self._sum(lower - last) + self._sum(read) + self._sum(beside)
            kept |= {v for v in lower if any(w not in lower for w in self.after[v])}
            peak_bytes, last = max(peak_bytes, nbytes), lower
        return peak_bytes

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
