"""The registry of strategies, and the interface with which they evaluate plans.

    @strategy("mine", description="what it does in a line, and its source", order=65)
    def mine(graph, costs, budget_bytes, evaluator, hints):
        return Plan("mine", program_order(graph), {...})

A new strategy is one file in strategies/ with such a function: the tables, `compare`, `fit`, the refusals and `auto`
find it here, and its entry states how they use it.
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
from layermem.utils.text import advice_for

T = TypeVar("T")
MINIMUM_MEMORY = 0  # a budget that nothing fits: strategies return the plan that needs the fewest bytes


class NativeLayout(NamedTuple):
    """The training graph in native code, for strategies that search there (native/planning/liveness/layout.h).

    ops, buffers  ids by name;  overlay_bits  by kind of overlay
    other_bytes   bytes of persistent buffers that only other graphs of the arena touch; plans do not count them
    """

    graph: _native.LayoutGraph
    ops: Mapping[str, int]
    buffers: Mapping[str, int]
    overlay_bits: Mapping[str, int]
    other_bytes: int


class PlanEvaluator(Protocol):
    """The properties of plans that a strategy may evaluate, in two threads if necessary (schedule/arena_planner.py
    implements it, test nets and updates included)."""

    def live_bytes(self, plan: Plan) -> int:
        """The most bytes in use at one tick: quick, never above the peak, and nearly always equal to it."""

    def estimate_seconds(self, plan: Plan) -> float:
        """Predicted seconds of a step, assuming that all bytes that copies free are needed at once: quick, and never
        below the seconds of the placed schedule."""

    def fewest_offloads(self, plan: Plan, gaps: Sequence[Gap], budget_bytes: int) -> int | None:
        """The number of `gaps` (no state between steps) that have to be offloaded, in their order, in addition to the
        plan's decisions, for it to fit; None if all of them are too few."""

    def without_offloads(
        self, plan: Plan, groups: Sequence[Sequence[Gap]], budget_bytes: int
    ) -> tuple[dict[Gap, Decision], float]:
        """The decisions that remain, and their estimated seconds, after the offloads of one group after the other are
        removed from a plan that fits: if it still fits and estimate_seconds() does not rise."""

    def native_layout(self) -> NativeLayout:
        """The graph that trains, fused updates included."""

    def cached(self, key: str, make: Callable[[], T]) -> T:
        """The result of `make` at the first call for `key`, for preparations that serve many budgets."""


class Strategy(Protocol):
    """A pure function from a graph and a budget (None: no limit) to a plan.  If no plan of its kind fits the budget, it
    returns the one that needs the fewest bytes."""

    def __call__(
        self, graph: Graph, costs: Costs, budget_bytes: int | None, evaluator: PlanEvaluator, hints: Hints, /
    ) -> Plan: ...


@dataclass(frozen=True)
class StrategyEntry:
    """A strategy and the properties that it declares.

    order                     its place in help texts and tables
    priority                  its place when strategies are tried in turn, the lowest number first
    compare_by_default        `compare` and `fit` run it unless the user names strategies
    suggest_when_over_budget  a refusal states whether it fits
    candidate_of_auto         `auto` considers its plan
    offloads                  its plans copy to the host; `auto` considers these candidates first
    fuses_updates             it plans the graph with fused updates, and shares preparations only with others that do
    combines_others           it chooses among the others, and is suggested only if no single one fits
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
    """Register a strategy under `name`, with its properties (fields of StrategyEntry)."""

    def register(make: Strategy) -> Strategy:
        STRATEGIES[name] = StrategyEntry(name, description, make, **declared)
        in_order = sorted(STRATEGIES.items(), key=lambda item: (item[1].order, item[0]))
        STRATEGIES.clear()
        STRATEGIES.update(in_order)
        return make

    return register


def get_strategy(name: str) -> StrategyEntry:
    """The entry of a registered strategy; InputError, with the known names, for another name."""
    if name not in STRATEGIES:
        raise InputError(f"unknown strategy '{name}' ({advice_for(name, STRATEGIES)})")
    return STRATEGIES[name]


Choice = str | Plan | Strategy | StrategyEntry  # a strategy by name, a saved plan, or a strategy itself
SAVED_PLAN = "saved plan"


def as_entry(choice: Choice) -> StrategyEntry:
    """The entry of a choice; the entry of a saved plan returns it for every budget."""
    if isinstance(choice, StrategyEntry):
        return choice
    if isinstance(choice, str):
        return get_strategy(choice)
    if isinstance(choice, Plan):
        return StrategyEntry(SAVED_PLAN, "a plan that was made before", _fixed(choice))
    if not callable(choice):
        raise InputError(f"{choice!r} is no strategy; give a name ({', '.join(STRATEGIES)})")
    return StrategyEntry(getattr(choice, "__name__", "unnamed"), "a strategy without an entry", choice)


def _fixed(plan: Plan) -> Strategy:
    def make(graph: Graph, costs: Costs, budget_bytes: int | None, evaluator: PlanEvaluator, hints: Hints, /) -> Plan:
        return plan

    return make


def default_strategy(budget_bytes: int | None) -> str:
    """The name of the strategy for users who name none."""
    return "liveness" if budget_bytes is None else "auto"


def suggested_strategies() -> list[StrategyEntry]:
    """The strategies that a refusal considers: single strategies first, then those that combine them."""
    suggested = [entry for entry in STRATEGIES.values() if entry.suggest_when_over_budget]
    return sorted(suggested, key=lambda entry: (entry.combines_others, entry.priority, entry.order))


def candidates_of_auto() -> list[StrategyEntry]:
    """The strategies whose plans `auto` considers; those that offload come first."""
    candidates = [entry for entry in STRATEGIES.values() if entry.candidate_of_auto and not entry.combines_others]
    return sorted(candidates, key=lambda entry: (not entry.offloads, entry.priority, entry.order))


def single_strategies() -> list[StrategyEntry]:
    """Every strategy that a refusal suggests or `auto` considers, by priority: no result of `auto` may be slower."""
    singles = [
        entry
        for entry in STRATEGIES.values()
        if (entry.suggest_when_over_budget or entry.candidate_of_auto) and not entry.combines_others
    ]
    return sorted(singles, key=lambda entry: (entry.priority, entry.order))
