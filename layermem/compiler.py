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

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import inf

from layermem.errors import BudgetError
from layermem.graph.ops import Graph
from layermem.planning.bounds import least_seconds_once
from layermem.planning.budget_search import HOPEFUL, BudgetSearch
from layermem.planning.costs import Costs, model_costs
from layermem.planning.hints import Hints
from layermem.planning.joined_updates import with_joined_updates
from layermem.planning.plan import Plan
from layermem.planning.registry import SAVED_PLAN, Choice, as_entry, default_strategy
from layermem.schedule.arena_planner import ArenaPlanner
from layermem.schedule.check import check
from layermem.schedule.lower import lower
from layermem.schedule.place import place
from layermem.schedule.program import Program
from layermem.schedule.simulate import simulate

NEAR_BOUND = 1.1  # times the lower bound of the seconds: a program that none with fewer fusions is compared with
FUSIONS_SAVE = 1.001  # times the seconds of a step with fewer fusions: what these save is not all in its costs
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

    @cached_property
    def less_fused(self) -> Compiler | None:
        """That of the step with fewer fusions; None where it has none to do without, or a plan was made before."""
        arena, search = self.arena.less_fused, self.search
        if arena is None or search.entry.name == SAVED_PLAN:
            return None
        return Compiler(arena.graphs, search.entry, search.costs, search.hints, arena)

    @property
    def smallest(self) -> Compiler:
        """The one whose smallest program takes the fewest bytes, of this one and those with fewer fusions."""
        others = [] if self.less_fused is None else [self.less_fused.smallest]
        return min(self, *others, key=lambda each: each.search.min_memory_program.arena_bytes) if others else self

    def compile(
        self,
        budget_bytes: int | None,
        *,
        search_minimum: bool = True,
        looks_further: bool = True,
        known: Program | None = None,
    ) -> Program:
        """The fastest program that was found, with all fusions unless their bytes do not fit, or fewer of them are
        faster.  `known`: the result of compile_fused()."""
        less = self.less_fused
        try:
            program = known or self.compile_fused(
                budget_bytes, search_minimum=search_minimum, looks_further=looks_further
            )
        except BudgetError as error:
            if less is None:
                raise
            try:
                return less.compile(budget_bytes, search_minimum=search_minimum, looks_further=looks_further)
            except BudgetError as other:
                raise min(error, other, key=lambda each: each.minimum_bytes) from None
        if less is None or budget_bytes is None or not looks_further or self.search.graph.not_fused:
            return program
        search = self.search
        bound = least_seconds_once(search.graph, search.costs, budget_bytes, search.hints.host_budget_bytes, self.arena)
        if program.seconds <= NEAR_BOUND * bound():
            return program
        try:
            faster = less.compile_fused(budget_bytes)
        except BudgetError:
            return program
        return faster if FUSIONS_SAVE * faster.seconds < program.seconds else program

    def compile_fused(
        self,
        budget_bytes: int | None,
        *,
        search_minimum: bool = True,
        looks_further: bool = True,
        hoped_seconds: float = inf,
    ) -> Program:
        """The fastest program that was found with all fusions; one that takes much longer than `hoped_seconds` has no
        further plans."""
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
