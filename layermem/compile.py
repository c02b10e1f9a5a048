"""All rooms so far on one page: graphs of a net -> plans -> schedules over one arena, inside a budget.

compile(graphs, strategy, budget, costs)
    parameters and other persistent buffers get offsets that every schedule shares
    the train graph's plan comes from the strategy; other graphs (tests, updates) live in the same arena
    every schedule is checked before anybody may run it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from layermem.errors import BudgetError
from layermem.graph.ops import Graph
from layermem.plan.base import Fate, Gap, Hints, Plan, default_strategy, get_strategy, ops_in_order, uses_of
from layermem.plan.costs import Costs, model_costs
from layermem.schedule.check import check
from layermem.schedule.ir import Schedule
from layermem.schedule.layout import Layout
from layermem.schedule.lower import lower
from layermem.schedule.place import Homes, place
from layermem.schedule.simulate import Timeline, simulate
from layermem.units import aligned, format_bytes
from layermem.verbs import callable_room

callable_room(__name__)

ATTEMPTS = 3  # at a plan that fits, the last one as lean as the strategy can


@dataclass(frozen=True)
class Program:
    """Schedules over one arena; the first is the train step.  `homes`: where the buffers live that outlive a step."""

    schedules: tuple[Schedule, ...]
    homes: Homes
    arena_bytes: int
    host_bytes: int
    costs: Costs

    @property
    def train(self) -> Schedule:
        return self.schedules[0]

    @property
    def max_live(self) -> int:
        return max(schedule.max_live for schedule in self.schedules)

    def timeline(self) -> Timeline:
        return simulate(self.train, self.costs)


class PeakOf:
    """What strategies ask: bytes that a plan of the train graph needs, parameters included.

    live      bytes in use at the fullest tick, without placement: quick, and never above the peak itself
    estimate  seconds of a step, without placement
    """

    def __init__(self, layout: Layout, extra: int = 0, budget: int | None = None):
        self.layout, self.extra, self.budget = layout, extra, budget

    def __call__(self, plan: Plan) -> int:
        return self._placed(plan).peak + self.extra

    def live(self, plan: Plan) -> int:
        return self.layout.live(plan) + self.extra

    def estimate(self, plan: Plan) -> float:
        return self.layout.seconds(plan)

    def seconds(self, plan: Plan) -> float:
        return simulate(self._placed(plan), self.layout.costs).seconds

    def _placed(self, plan: Plan) -> Schedule:
        return place(self.layout.graph, plan, lower(self.layout, plan), target=(self.budget or 0) - self.extra)


def compile(
    graphs: Sequence[Graph],
    *,
    strategy: str | Callable[..., Plan] | None = None,
    budget: int | None = None,
    costs: Costs | None = None,
    plan: Plan | None = None,
    hints: Hints = Hints(),
) -> Program:
    """Schedules for `graphs` (the first one trains) under `budget` bytes; BudgetError says what would do."""
    costs = costs or model_costs(graphs[0].device)
    train = graphs[0]
    strategy = strategy or default_strategy(budget)
    make = get_strategy(strategy).make if isinstance(strategy, str) else strategy
    layouts = [Layout(graph, costs) for graph in graphs]
    extra = _bytes_of_others(graphs)
    asked = budget
    for attempt in range(ATTEMPTS):
        chosen = plan or make(train, costs, asked, PeakOf(layouts[0], extra, asked), hints)
        program = _place_all(
            layouts, [chosen, *(_plan_beside(layout, chosen) for layout in layouts[1:])], costs, budget
        )
        over = program.arena_bytes - budget if budget is not None else 0
        if over <= 0 or plan is not None:
            break
        # A strategy counts bytes in use by its own graph; placement or a test net took more.  Ask for that much less.
        asked = max((asked or 0) - over, 0) if attempt < ATTEMPTS - 2 else 0
    if budget is not None and over > 0:
        raise over_budget(program, budget)
    if hints.host_budget is not None and program.host_bytes > hints.host_budget:
        needed = program.host_bytes
        raise BudgetError(
            f"{train.name} offloads {needed} bytes ({format_bytes(needed)}) under '{chosen.strategy}', and may have "
            f"{hints.host_budget} ({format_bytes(hints.host_budget)}) of host memory",
            budget=hints.host_budget,
            minimum=needed,
        )
    check(*program.schedules)
    return program


def _bytes_of_others(graphs: Sequence[Graph]) -> int:
    """Persistent bytes that only graphs beside the train graph know."""
    mine = graphs[0].buffers
    others = {b.name: b.nbytes for graph in graphs[1:] for b in graph.persistent() if b.name not in mine}
    return sum(aligned(n) for n in others.values())


def _plan_beside(layout: Layout, train: Plan) -> Plan:
    """A test or update plan in the arena of `train`: the same homes, everything else by last use."""
    graph = layout.graph
    base = get_strategy("caffe" if train.strategy == "caffe" else "liveness")
    plan = base.make(graph, layout.costs, None, PeakOf(layout), Hints())
    away = {gap.buffer for gap, fate in train.fates.items() if fate is Fate.OFFLOAD and gap.use == -1}
    fates = dict(plan.fates)
    for buffer, uses in uses_of(ops_in_order(graph, plan.order)).items():
        if buffer in away:
            fates |= {Gap(buffer, number): Fate.OFFLOAD for number in range(-1, len(uses))}
    return Plan(plan.strategy, plan.order, fates, plan.overlays, train.ahead)


def _place_all(layouts: Sequence[Layout], plans: Sequence[Plan], costs: Costs, budget: int | None) -> Program:
    homes = _homes([layout.graph for layout in layouts], plans)
    schedules = tuple(
        place(layout.graph, plan, lower(layout, plan), homes=homes, target=budget or 0)
        for layout, plan in zip(layouts, plans)
    )
    arena = max(schedule.peak for schedule in schedules)
    return Program(schedules, homes, arena, max(s.host_peak for s in schedules), costs)


def _homes(graphs: Sequence[Graph], plans: Sequence[Plan]) -> Homes:
    """Offsets from the bottom up, on the host for buffers whose last gap is OFFLOAD."""
    places: tuple[dict[str, int], dict[str, int]] = ({}, {})
    floors = [0, 0]
    for graph in graphs:
        for buffer in graph.persistent():
            host = any(plan.fates.get(Gap(buffer.name, -1)) is Fate.OFFLOAD for plan in plans)
            if buffer.name not in places[host]:
                places[host][buffer.name] = floors[host]
                floors[host] += aligned(buffer.nbytes)
    return Homes(places[0], floors[0], places[1], floors[1])


def over_budget(program: Program, budget: int) -> BudgetError:
    """The refusal: asked, needed, and the fullest moment with what fills it."""
    schedule = max(program.schedules, key=lambda s: s.peak)
    tick = schedule.fullest
    row = schedule.rows[tick]
    biggest = ", ".join(f"{r.buffer} {format_bytes(r.nbytes)}" for r in schedule.live_at(tick)[:5])
    needed = program.arena_bytes
    return BudgetError(
        f"{schedule.graph.name} needs {needed} bytes ({format_bytes(needed)}) under '{schedule.plan.strategy}', the "
        f"budget is {budget} ({format_bytes(budget)}); fullest at {row.verb} {row.what} (tick {tick}): {biggest}",
        budget=budget,
        minimum=needed,
    )
