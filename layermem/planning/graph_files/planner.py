"""Recomputation planned for a graph file: chains of lower sets over its values, as Kusumoto et al. (NeurIPS 2019).

    file        functions in any order, over values, parameters and network inputs
    ValueGraph  a node per value, in topological order; an edge where a function reads one and writes the other
    plan_graph  budget -> chain of lower sets -> schedule text (graphschedule.py)

Gradients follow the paper: that of a value reads the gradients of all its readers and every value they read.
Bytes are of values and their gradients; parameters, inputs and workspace are not counted, as in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layermem import _native
from layermem.errors import InputError
from layermem.planning.graph_files.schedule_text import schedule_text
from layermem.planning.graph_files.text_format import GraphFile, read_graph
from layermem.planning.graph_files.value_graph import ValueGraph

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
