"""Compile graphs into a program within a memory budget.

    graphs     of a training step, then of whatever else shares its arena        graph/train.py
    strategy   an order of ops, and a decision for every gap between two uses    planning/strategies/
    lower      instructions and residencies                                      schedule/lower.py
    place      an offset for every residency                                     schedule/place.py
    simulate   the predicted seconds of the step                                 schedule/simulate.py
    join       updates that wait for each other, to be one launch                planning/joined_updates.py
    check      proof that every instruction reads the values that it should      schedule/check.py

A strategy counts live bytes; placed, its plan may need a few more.  planning/budget_search.py then requests a plan for
fewer.  Where a strategy has further plans, the faster program of both counts.
"""

from collections.abc import Sequence
from math import inf

from layermem.graph.ops import Graph
from layermem.planning.budget_search import HOPEFUL, BudgetSearch
from layermem.planning.costs import Costs, model_costs
from layermem.planning.hints import Hints
from layermem.planning.joined_updates import with_joined_updates
from layermem.planning.plan import Plan
from layermem.planning.registry import Choice, as_entry, default_strategy
from layermem.schedule.arena_planner import ArenaPlanner
from layermem.schedule.check import check
from layermem.schedule.lower import lower
from layermem.schedule.place import place
from layermem.schedule.program import Program
from layermem.schedule.simulate import simulate

JOINED_SHARE = 64  # of the live bytes, which updates that wait for each other leave free if need be


def compile(
    graphs: Sequence[Graph],
    *,
    strategy: Choice | None = None,
    budget_bytes: int | None = None,
    costs: Costs | None = None,
    hints: Hints = Hints(),
) -> Program:
    """The fastest program that was found for `graphs` (the first one trains), by a strategy or a saved plan.

    BudgetError, with the minimum, if none fits the budget."""
    costs = costs or model_costs(graphs[0].device)
    return Compiler(graphs, strategy or default_strategy(budget_bytes), costs, hints).compile(budget_bytes)


class Compiler:
    """A strategy, or a saved plan, over graphs, for any budget.

    arena   of the same graphs and costs: what other strategies have computed there is not computed again
    """

    def __init__(
        self,
        graphs: Sequence[Graph],
        strategy: Choice,
        costs: Costs,
        hints: Hints = Hints(),
        arena: ArenaPlanner | None = None,
    ):
        self.arena = arena or ArenaPlanner(graphs, costs)
        self.search = BudgetSearch(as_entry(strategy), graphs[0], costs, self.arena, hints, self.build)

    def compile(
        self,
        budget_bytes: int | None,
        *,
        search_minimum: bool = True,
        looks_further: bool = True,
        hoped_seconds: float = inf,
    ) -> Program:
        """The fastest program that was found; one that takes much longer than `hoped_seconds` has no further plans."""
        found = self.search.program(budget_bytes, search_minimum=search_minimum)
        is_near = found.seconds <= HOPEFUL * hoped_seconds
        further = self.search.further_program(budget_bytes, found) if looks_further and is_near else None
        programs = [self._joined(each) for each in (found, further) if each is not None]
        program = min(programs, key=lambda each: each.seconds)
        self.arena.programs.check(program, lambda: check(*program.schedules))
        return program

    def build(self, plan: Plan, target_bytes: int = 0) -> Program:
        """The program of one plan; the search for offsets ends once they need no more than `target_bytes`."""
        key = self.arena.key_of(plan)
        return self.arena.programs.get(key, target_bytes, plan, lambda: self._place(plan, target_bytes))

    def _joined(self, program: Program) -> Program:
        """`program` with updates that are launched together, where that takes no more bytes.  Offsets are hard to find
        where all bytes are in use at many ops: then some of them stay free."""
        train = program.train
        profile = self.arena.layouts[0].live_profile(train.plan)
        for free_bytes in (0, train.max_live_bytes // JOINED_SHARE):
            plan = with_joined_updates(train.plan, train.graph, profile, train.max_live_bytes - free_bytes)
            if plan is train.plan:
                break
            found = self.build(plan, program.arena_bytes)
            if found.arena_bytes <= program.arena_bytes and found.host_bytes <= program.host_bytes:
                return min(program, found, key=lambda each: each.seconds)
        return program

    def _place(self, plan: Plan, target_bytes: int) -> Program:
        lowered = [lower(layout, each) for layout, each in zip(self.arena.layouts, self.arena.plans(plan))]
        offsets = self.arena.persistent_offsets(plan)
        schedules = [place(each, persistent=offsets, target_bytes=target_bytes) for each in lowered]
        return Program.of(schedules, offsets, simulate(schedules[0], self.arena.costs))
