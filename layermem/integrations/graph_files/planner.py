"""Plans recomputation for a graph file: chains of lower sets over its values, as in Kusumoto et al. (NeurIPS 2019), or
nested recomputation (nested.py).

    file        functions in any order, over values, parameters and network inputs
    ValueGraph  a node per value, in topological order; an edge where a function reads one and writes the other
    GraphPlanner  budget -> chain of lower sets, or nested plan -> schedule text (schedule_text.py)

The gradient of a value reads the gradients of all its readers, and the data that the backward of each of them reads.
Only the bytes of values and their gradients count; parameters, inputs and workspace do not, as in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from layermem import _native
from layermem.errors import InputError
from layermem.integrations.graph_files.bound import least_recomputed
from layermem.integrations.graph_files.nested import NestedProblem
from layermem.integrations.graph_files.schedule_text import schedule_text
from layermem.integrations.graph_files.sublinear import SublinearResult, sublinear_plans
from layermem.integrations.graph_files.text_format import AUTHORS, GraphFile
from layermem.integrations.graph_files.value_graph import READS, ValueGraph

OBJECTIVES = {"T": "time", "M": "memory"}
NESTED, SUBLINEAR = "nested", "sublinear"
FAMILIES = ("extended", "exact", "approx", NESTED, SUBLINEAR)


def default_reads(model: str) -> str:
    """The default of `reads` under `model`: the formula of the paper holds only for inputs."""
    return "inputs" if model == "paper" else "file"


@dataclass(frozen=True)
class GraphPlan:
    """The cost (in `cost_unit`) and the bytes of a plan; without a plan, the bounds that show why there is none.

    Searches over lower sets round costs to 1/16,384 of their sum if that is above 2^20; `proven_optimal` then holds
    only for the rounded costs.
    """

    feasible: bool
    budget_bytes: int
    minimum_bytes: int  # smallest budget with a plan, by the same model and family
    minimum_proven: bool  # whether no smaller budget has a plan
    lower_sets: int
    seconds: float
    proven_optimal: bool  # the plan is the best of its family, or none exists
    cost_forward: int
    cost_bound: int = 0  # lower bound of the cost of any plan within the budget
    cost_recomputed: int | None = None
    peak_bytes: int | None = None  # exact liveness of the schedule
    peak_formula_bytes: int | None = None  # the paper's max M_i of the chain
    chain: tuple[tuple[int, ...], ...] = ()  # L1 < L2 < ... < V, as variable ids
    reads: str = "file"  # the data that backwards are assumed to read
    cost_unit: str = AUTHORS  # NANOSECONDS, or AUTHORS: 10 for a convolution, 1 for any other function
    schedule: str = field(default="", repr=False)


class GraphPlanner:
    """A graph under one family, model, reads and op costs, for many budgets: the costs of segments are cached.

    family      lower sets at which a segment may end: extended, exact or approx; or nested, any value any number of
                times, from plans of the extended family; or sublinear, the segments of Chen et al.; both
                have objective T and model live
    model       live: bytes as liveness holds them; paper: by the formula of Kusumoto et al.
    reads       file: a backward reads the data that the file lists (default of model live); inputs: the inputs of its
                function (assumption and default of model paper)
    op_costs    file: seconds of each function if the file gives them; authors: 10 for a convolution, else 1
    """

    def __init__(
        self,
        graph: GraphFile,
        family: str = "extended",
        model: str = "live",
        reads: str | None = None,
        op_costs: str = "file",
    ):
        reads = reads or default_reads(model)
        if reads not in READS:
            raise InputError(f"unknown reads '{reads}' (choose from {', '.join(READS)})")
        if model == "paper" and reads != "inputs":
            raise InputError("model 'paper' is a formula for reads 'inputs'; use model 'live', or reads 'inputs'")
        if model == "paper" and family in (NESTED, SUBLINEAR):
            raise InputError(f"model 'paper' is a formula for lower sets; use model 'live' with family '{family}'")
        self.values = ValueGraph(graph, reads, op_costs)
        if not self.values.variables:
            raise InputError(
                "has no values to plan for: no function writes a variable named '_'; export it again", path=graph.path
            )
        of_lower_sets = {NESTED: "extended", SUBLINEAR: "approx"}.get(family, family)
        self.native = _native.LowerSetPlanner(self.values.native, of_lower_sets, model)
        self.nested = NestedProblem(self.values) if family == NESTED else None
        self.sublinear = sublinear_plans(self.values) if family == SUBLINEAR else None
        self._least: _native.ChainReport | None = None

    def least(self, limit_seconds: float = 60.0) -> _native.ChainReport:
        """The native plan of the smallest peak found; its model_peak_bytes is the smallest budget."""
        if self._least is None or not self._least.proven_optimal:
            self._least = self.native.minimum(limit_seconds)
        return self._least

    def plan(self, budget_bytes: int | None = None, objective: str = "T", limit_seconds: float = 60.0) -> GraphPlan:
        """The plan within `budget_bytes` of values and gradients; without a budget, within the smallest that has a
        plan.

        objective      T: least recomputation; M: most recomputation, in coarse segments whose memory liveness then
                       reduces
        limit_seconds  limit of the search for the smallest budget, and again of that for the plan, in seconds that
                       are counted in steps, so that the answer is the same on every machine; at the limit the best
                       plan so far is returned
        """
        if self.nested is not None:
            return self._plan_nested(self.nested, budget_bytes, objective, limit_seconds)
        if self.sublinear is not None:
            return self._plan_sublinear(self.sublinear, budget_bytes, objective)
        least = self.least(limit_seconds)
        budget_bytes = least.model_peak_bytes if budget_bytes is None else budget_bytes
        found = self.native.solve(budget_bytes, OBJECTIVES[objective], limit_seconds)
        # The time limit ended the search before it found this plan.
        if found is None and least.model_peak_bytes <= budget_bytes:
            found = least
        minimum_bytes = min(least.model_peak_bytes, found.model_peak_bytes) if found else least.model_peak_bytes
        common = self._common(budget_bytes, minimum_bytes, least.proven_optimal)
        if found is None:
            proven = self.native.proven_infeasible
            return GraphPlan(feasible=False, seconds=least.seconds, proven_optimal=proven, **common)
        optimal = found.proven_optimal and found is not least and not self.native.truncated
        return GraphPlan(
            feasible=True,
            seconds=found.seconds,
            proven_optimal=optimal,
            cost_recomputed=sum(self.values.costs[i] for kind, i in found.actions if kind == "recompute"),
            peak_bytes=found.peak_bytes,
            peak_formula_bytes=self.values.formula_peak_bytes(found.lower_sets),
            chain=tuple(tuple(self.values.variables[node] for node in lower) for lower in found.lower_sets),
            schedule=schedule_text(self.values, found.actions),
            **common,
        )

    def _common(self, budget_bytes: int, minimum_bytes: int, minimum_proven: bool) -> dict[str, Any]:
        return {
            "budget_bytes": budget_bytes,
            "minimum_bytes": minimum_bytes,
            "minimum_proven": minimum_proven,
            "lower_sets": self.native.lower_sets,
            "reads": self.values.reads,
            "cost_unit": self.values.cost_unit,
            "cost_forward": sum(self.values.costs),
            "cost_bound": least_recomputed(self.values, budget_bytes),
        }

    def _plan_sublinear(
        self, candidates: Sequence[SublinearResult], budget_bytes: int | None, objective: str
    ) -> GraphPlan:
        if OBJECTIVES[objective] == "memory":
            raise InputError("objective 'memory' is of lower sets; use objective 'time' with family 'sublinear'")
        minimum_bytes = min(each.peak_bytes for each in candidates)
        budget_bytes = minimum_bytes if budget_bytes is None else budget_bytes
        common = self._common(budget_bytes, minimum_bytes, False) | {"lower_sets": len(self.values.variables)}
        fitting = [each for each in candidates if each.peak_bytes <= budget_bytes]
        if not fitting:
            return GraphPlan(feasible=False, seconds=0.0, proven_optimal=False, **common)
        found = min(fitting, key=lambda each: (each.cost_recomputed, each.peak_bytes))
        return GraphPlan(
            feasible=True,
            seconds=0.0,
            proven_optimal=found.cost_recomputed == common["cost_bound"],
            cost_recomputed=found.cost_recomputed,
            peak_bytes=found.peak_bytes,
            chain=tuple(tuple(self.values.variables[:end]) for end in found.ends),
            schedule=schedule_text(self.values, found.actions),
            **common,
        )

    def _plan_nested(
        self, nested: NestedProblem, budget_bytes: int | None, objective: str, limit_seconds: float
    ) -> GraphPlan:
        """Without a budget, or with one that has no plan, search for the fewest bytes; otherwise report the smallest
        peak found."""
        if OBJECTIVES[objective] == "memory":
            raise InputError("objective 'memory' is of lower sets; use objective 'time' with family 'nested'")
        begin = perf_counter()
        found = None
        if budget_bytes is not None:
            start = self.native.solve(budget_bytes, "time", limit_seconds)
            found = nested.plan(budget_bytes, [start.actions] if start else [])
        minimum_bytes = found.peak_bytes if found else 0
        if found is None:
            lower, least = self.least(limit_seconds), nested.minimum()
            minimum_bytes = min(lower.model_peak_bytes, least.peak_bytes)
            budget_bytes = minimum_bytes if budget_bytes is None else budget_bytes
            fitting = [each.actions for each in (lower, least) if each.peak_bytes <= budget_bytes]
            found = nested.plan(budget_bytes, fitting) if fitting else None
        seconds = perf_counter() - begin
        assert budget_bytes is not None
        common = self._common(budget_bytes, minimum_bytes, False)
        if found is None:
            return GraphPlan(feasible=False, seconds=seconds, proven_optimal=False, **common)
        return GraphPlan(
            feasible=True,
            seconds=seconds,
            proven_optimal=found.cost_recomputed == common["cost_bound"],
            cost_recomputed=found.cost_recomputed,
            peak_bytes=found.peak_bytes,
            schedule=schedule_text(self.values, found.actions),
            **common,
        )
