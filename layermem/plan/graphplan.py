"""Recomputation planned for a graph file: chains of lower sets over its values, as Kusumoto et al. (NeurIPS 2019).

    file        functions in any order, over values, parameters and network inputs
    ValueGraph  a node per value, in topological order; an edge where a function reads one and writes the other
    plan_graph  budget -> chain of lower sets -> schedule text (graphschedule.py)

Gradients follow the paper: that of a value reads the gradients of all its readers and every value they read.
Bytes are of values and their gradients; parameters, inputs and workspace are not counted, as in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from layermem import _native
from layermem.errors import InputError
from layermem.plan.graphfile import GraphFile, read_graph
from layermem.plan.graphschedule import schedule_text

OBJECTIVES = {"T": "time", "M": "memory"}
FAMILIES = ("extended", "exact", "approx")
MODELS = ("live", "paper")


@dataclass(frozen=True)
class GraphPlan:
    """What a plan costs (in the units of Function.cost) and takes (in bytes); without a plan, why not."""

    feasible: bool
    budget_bytes: int
    minimum_bytes: int  # least budget that was found to do, by the same model and family
    minimum_proven: bool  # no less would do
    lower_sets: int
    seconds: float
    proven_optimal: bool  # of the plan: nothing better in the family; of no plan: there is none
    cost_forward: int
    cost_recomputed: int | None = None
    peak_bytes: int | None = None  # exact liveness of the schedule
    peak_formula_bytes: int | None = None  # the paper's max M_i of the chain
    chain: tuple[tuple[int, ...], ...] = ()  # L1 < L2 < ... < V, of variable ids
    schedule: str = field(default="", repr=False)


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


class GraphPlanner:
    """A graph under one family and model, to be asked for many budgets: segments are remembered."""

    def __init__(self, graph: GraphFile, family: str = "extended", model: str = "live"):
        self.values = ValueGraph(graph)
        if not self.values.variables:
            raise InputError("has no values to plan for: no function writes a variable named '_'", path=graph.path)
        self.native = _native.LowerSetPlanner(self.values.native, family, model)
        self._least: Any = None

    def least(self, time_limit: float = 60.0) -> Any:
        """The native plan of the least peak that was found; its model_peak is the least budget."""
        if self._least is None or not self._least.proven_optimal:
            self._least = self.native.minimum(time_limit)
        return self._least

    def plan(self, budget: int | None = None, objective: str = "T", time_limit: float = 60.0) -> GraphPlan:
        """The plan within `budget` bytes of values and gradients; without one, within the least that will do."""
        least = self.least(time_limit)
        budget = least.model_peak if budget is None else budget
        found = self.native.solve(budget, OBJECTIVES[objective], time_limit)
        if found is None and least.model_peak <= budget:  # the time was up before the search came that far
            found = least
        common: dict[str, Any] = {
            "budget_bytes": budget,
            "minimum_bytes": min(least.model_peak, found.model_peak) if found else least.model_peak,
            "minimum_proven": least.proven_optimal,
            "lower_sets": self.native.lower_sets,
            "cost_forward": sum(self.values.costs),
        }
        if found is None:
            proven = self.native.proven_infeasible
            return GraphPlan(feasible=False, seconds=least.seconds, proven_optimal=proven, **common)
        optimal = found.proven_optimal and found is not least and not self.native.truncated
        return GraphPlan(
            feasible=True,
            seconds=found.seconds,
            proven_optimal=optimal,
            cost_recomputed=round(found.recompute_time),
            peak_bytes=found.peak_bytes,
            peak_formula_bytes=self.values.formula_peak(found.lower_sets),
            chain=tuple(tuple(self.values.variables[node] for node in lower) for lower in found.lower_sets),
            schedule=schedule_text(self.values, found.actions),
            **common,
        )


def plan_graph(
    path: str | Path, budget: int | None = None, objective: str = "T", family: str = "extended", model: str = "live",
    time_limit: float = 60.0,
) -> GraphPlan:  # fmt: skip
    """A plan for the graph file at `path` within `budget` bytes, or within the least that will do.

    objective   T: least recomputation; M: most of it, the coarse segments that liveness then shrinks
    time_limit  seconds for the least budget and again for the plan, each; then the best found so far is given
    """
    return GraphPlanner(read_graph(path), family, model).plan(budget, objective, time_limit)
