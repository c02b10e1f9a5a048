"""Compiles the graphs of an arena: places plans, and chooses between a step with all of its fusions and steps with
fewer, which need fewer bytes (graph/rewrite.py)."""

from __future__ import annotations

from functools import cached_property, partial

from layermem.errors import BudgetError
from layermem.planning.bounds import least_seconds_once
from layermem.planning.budget_search import BudgetSearch
from layermem.planning.hints import Hints
from layermem.planning.joined_updates import join_updates
from layermem.planning.plan import Plan
from layermem.planning.registry import SAVED_PLAN, Choice, as_entry
from layermem.planning.settings import SETTINGS
from layermem.schedule.arena_planner import ArenaPlanner
from layermem.schedule.check import check
from layermem.schedule.lower import lower
from layermem.schedule.place import place
from layermem.schedule.program import Program
from layermem.schedule.simulate import simulate


class Compiler:
    """Compiles the graphs of `arena`, which caches results, under a strategy or a saved plan, for any budget."""

    def __init__(self, arena: ArenaPlanner, strategy: Choice, hints: Hints = Hints()):
        self.arena, self.strategy, self.hints = arena, strategy, hints
        self.search = BudgetSearch(as_entry(strategy), arena.graphs[0], arena.costs, arena, hints, self.build)

    def build(self, plan: Plan, target_bytes: int = 0) -> Program:
        """Place one plan; the search for offsets ends once they need at most `target_bytes`."""
        build = partial(self._build, plan, target_bytes)
        return self.arena.programs.get(self.arena.key_of(plan), target_bytes, plan, build)

    def _build(self, plan: Plan, target_bytes: int) -> Program:
        lowered = [lower(layout, each) for layout, each in zip(self.arena.layouts, self.arena.plans(plan))]
        offsets = self.arena.persistent_offsets(plan)
        schedules = [place(each, persistent=offsets, target_bytes=target_bytes) for each in lowered]
        return Program.of(schedules, offsets, simulate(schedules[0], self.arena.costs), target_bytes)

    def checked(self, program: Program) -> Program:
        """`program`, whose schedules are proven to be safe."""
        self.arena.programs.check(program, lambda: check(*program.schedules))
        return program

    def compile_fused(self, budget_bytes: int | None, *, quick: bool = False) -> Program:
        """The fastest program that was found with all fusions; BudgetError, with the minimum, if none fits.  `quick`:
        without a search for the minimum."""
        program = self.search.program(budget_bytes, search_minimum=not quick)
        return self.checked(join_updates(program, self.arena.layouts[0].live_profile, self.build))

    # -- fewer fusions -----------------------------------------------------------------------------------------

    @cached_property
    def less_fused(self) -> Compiler | None:
        """The compiler of the step with fewer fusions; None if there are none to omit, or if the plan is a saved
        one."""
        arena = self.arena.less_fused
        if arena is None or self.search.entry.name == SAVED_PLAN:
            return None
        return type(self)(arena, self.strategy, self.hints)

    @property
    def smallest(self) -> Compiler:
        """The compiler with the smallest program: this one, or one with fewer fusions."""
        others = [] if self.less_fused is None else [self.less_fused.smallest]
        return min(self, *others, key=lambda each: each.search.min_memory_program.arena_bytes) if others else self

    def compile(self, budget_bytes: int | None, *, quick: bool = False, known: Program | None = None) -> Program:
        """The fastest program that was found: with all fusions, unless their bytes do not fit or fewer fusions are
        faster.  `known`: the result of compile_fused()."""
        less = self.less_fused
        try:
            program = known or self.compile_fused(budget_bytes, quick=quick)
        except BudgetError as error:
            if less is None:
                raise
            try:
                return less.compile(budget_bytes, quick=quick)
            except BudgetError as other:
                raise min(error, other, key=lambda each: each.minimum_bytes) from None
        if less is None or budget_bytes is None or quick or self.search.graph.not_fused:
            return program
        graph, host_bytes = self.search.graph, self.hints.host_budget_bytes
        bound = least_seconds_once(graph, self.arena.costs, budget_bytes, host_bytes, self.arena)
        if program.seconds <= SETTINGS.fusion_bound_ratio * bound():
            return program
        try:
            faster = less.compile_fused(budget_bytes)
        except BudgetError:
            return program
        return faster if SETTINGS.fusion_ratio * faster.seconds < program.seconds else program
