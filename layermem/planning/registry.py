"""Strategies: how they are registered, and what they may evaluate while they plan.

    @strategy("mine", description="what it does in a line, and its source", order=65)
    def mine(graph, costs, budget_bytes, evaluator, hints):
        return Plan("mine", program_order(graph), {...})

A file in strategies/ with such a function is all that a new strategy takes: the tables, `compare`, `fit`, the refusals
and `auto` find it here, and read from its entry how to use it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from layermem import _native
from layermem.errors import InputError
from layermem.graph.ops import Graph
from layermem.planning.costs import Costs
from layermem.planning.hints import Hints
from layermem.planning.plan import Decision, Gap, Plan
from layermem.utils.text import choices

T = TypeVar("T")
MINIMUM_MEMORY = 0  # a budget that nothing fits: strategies answer it with the plan that needs the fewest bytes


class NativeLayout(NamedTuple):
    """The training graph in native code, for strategies that search there (native/planning/liveness/layout.h).

    ops, buffers  ids by name;  overlay_bits  by kind of overlay
    other_bytes   of persistent buffers that only other graphs of the arena touch: no plan of the graph counts them
    """

    graph: _native.LayoutGraph
    ops: Mapping[str, int]
    buffers: Mapping[str, int]
    overlay_bits: Mapping[str, int]
    other_bytes: int


class PlanEvaluator(Protocol):
    """What a strategy may evaluate of a plan (schedule/arena_planner.py answers, test nets and updates included), in
    two threads if need be."""

    def live_bytes(self, plan: Plan) -> int:
        """Most bytes in use at one tick: quick, never above the peak, and nearly always equal to it."""

    def estimate_seconds(self, plan: Plan) -> float:
        """Predicted seconds of a step, as if all bytes that copies free were wanted at once: quick, and never below
        what the placed schedule takes."""

    def fewest_offloads(self, plan: Plan, gaps: Sequence[Gap], budget_bytes: int) -> int | None:
        """How many of `gaps`, none of state between steps, have to be offloaded beside the plan's decisions for it to
        fit, the first ones first; None if all of them are too few."""

    def without_offloads(
        self, plan: Plan, groups: Sequence[Sequence[Gap]], budget_bytes: int
    ) -> tuple[dict[Gap, Decision], float]:
        """The decisions that are left, and their estimated seconds, once the offloads of one group after the other are
        removed from a plan that fits: where it still fits and estimate_seconds() does not rise."""

    def native_layout(self) -> NativeLayout:
        """The graph that trains, fused updates included."""

    def cached(self, key: str, make: Callable[[], T]) -> T:
        """What `make` returned at the first call for `key`: preparations that serve many budgets."""


class Strategy(Protocol):
    """A pure function from a graph and a budget (None: no limit) to a plan.  If no plan of its kind fits the budget, it
    returns the one that needs the fewest bytes."""

    def __call__(
        self, graph: Graph, costs: Costs, budget_bytes: int | None, evaluator: PlanEvaluator, hints: Hints, /
    ) -> Plan: ...


@dataclass(frozen=True)
class StrategyEntry:
    """A strategy and what it declares of itself.

    order                     its place in help texts and tables
    priority                  its place where strategies are tried in turn, the lowest number first
    compare_by_default        `compare` and `fit` run it unless the user names strategies
    suggest_when_over_budget  a refusal says whether it fits
    candidate_of_auto         `auto` looks at its plan
    offloads                  its plans copy to the host; `auto` looks at these candidates first
    fuses_updates             it plans the graph with fused updates: what it prepares serves only others that do
    combines_others           it already chooses among the others: suggested only if no single one fits
    other_graphs              strategy of the test nets and updates that share the arena
    """

    name: str
    description: str
    make: Strategy
    order: int = 1000
    priority: int = 1000
    compare_by_default: bool = True
    suggest_when_over_budget: bool = True
    candidate_of_auto: bool = True
    offloads: bool = False
    fuses_updates: bool = False
    combines_others: bool = False
    other_graphs: str = "liveness"


STRATEGIES: dict[str, StrategyEntry] = {}  # by name, in the order of tables; filled by planning/strategies


def strategy(name: str, *, description: str, **declared: Any) -> Callable[[Strategy], Strategy]:
    """Register a strategy under `name`, with what it declares of itself (StrategyEntry)."""

    def register(make: Strategy) -> Strategy:
        STRATEGIES[name] = StrategyEntry(name, description, make, **declared)
        in_order = sorted(STRATEGIES.items(), key=lambda item: (item[1].order, item[0]))
        STRATEGIES.clear()
        STRATEGIES.update(in_order)
        return make

    return register


def get_strategy(name: str) -> StrategyEntry:
    if name not in STRATEGIES:
        raise InputError(f"unknown strategy '{name}' ({choices(name, STRATEGIES)})")
    return STRATEGIES[name]


Choice = str | Plan | Strategy | StrategyEntry  # a strategy by name, a saved plan, or a strategy itself
SAVED_PLAN = "saved plan"


def as_entry(choice: Choice) -> StrategyEntry:
    """The entry of a choice; that of a saved plan answers every budget with it."""
    if isinstance(choice, StrategyEntry):
        return choice
    if isinstance(choice, str):
        return get_strategy(choice)
    if isinstance(choice, Plan):
        return StrategyEntry(SAVED_PLAN, "a plan that was made before", _fixed(choice))
    return StrategyEntry(getattr(choice, "__name__", "unnamed"), "a strategy without an entry", choice)


def _fixed(plan: Plan) -> Strategy:
    def make(graph: Graph, costs: Costs, budget_bytes: int | None, evaluator: PlanEvaluator, hints: Hints, /) -> Plan:
        return plan

    return make


def default_strategy(budget_bytes: int | None) -> str:
    """The strategy of a user who names none."""
    return "liveness" if budget_bytes is None else "auto"


def suggested_strategies() -> list[StrategyEntry]:
    """What a refusal looks at: single strategies first, then those that combine them."""
    suggested = [entry for entry in STRATEGIES.values() if entry.suggest_when_over_budget]
    return sorted(suggested, key=lambda entry: (entry.combines_others, entry.priority, entry.order))


def candidates_of_auto() -> list[StrategyEntry]:
    """Whose plans `auto` looks at beside its own: those that offload first."""
    candidates = [entry for entry in STRATEGIES.values() if entry.candidate_of_auto and not entry.combines_others]
    return sorted(candidates, key=lambda entry: (not entry.offloads, entry.priority, entry.order))


def single_strategies() -> list[StrategyEntry]:
    """Every strategy that a refusal suggests or `auto` looks at, by priority: no result of `auto` may be slower."""
    singles = [
        entry
        for entry in STRATEGIES.values()
        if (entry.suggest_when_over_budget or entry.candidate_of_auto) and not entry.combines_others
    ]
    return sorted(singles, key=lambda entry: (entry.priority, entry.order))
