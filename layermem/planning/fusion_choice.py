"""Programs of a step with all of its fusions, or with fewer fusions, which need fewer bytes (graph/rewrite.py)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

from layermem.errors import BudgetError
from layermem.planning.bounds import least_seconds_once
from layermem.planning.budget_search import BudgetSearch
from layermem.planning.hints import Hints
from layermem.planning.registry import SAVED_PLAN, Choice
from layermem.planning.settings import SETTINGS
from layermem.schedule.arena_planner import ArenaPlanner
from layermem.schedule.program import Program


class FusionChoice(ABC):
    """Compiles the graphs of an arena with all fusions (pipeline.Compiler), or with fewer.  `arena` caches the results
    of other strategies."""

    search: BudgetSearch[Program]

    def __init__(self, arena: ArenaPlanner, strategy: Choice, hints: Hints = Hints()):
        self.arena, self.strategy, self.hints = arena, strategy, hints

    @abstractmethod
    def compile_fused(self, budget_bytes: int | None, *, quick: bool = False) -> Program:
        """The fastest program that was found with all fusions; BudgetError, with the minimum, if none fits."""

    @cached_property
    def less_fused(self) -> FusionChoice | None:
        """The choice for the step with fewer fusions; None if there are none to omit, or if the plan is a saved one."""
        arena = self.arena.less_fused
        if arena is None or self.search.entry.name == SAVED_PLAN:
            return None
        return type(self)(arena, self.strategy, self.hints)

    @property
    def smallest(self) -> FusionChoice:
        """The choice with the smallest program: this one, or one with fewer fusions."""
        others = [] if self.less_fused is None else [self.less_fused.smallest]
        return min(self, *others, key=lambda each: each.search.min_memory_program.arena_bytes) if others else self

    def compile(self, budget_bytes: int | None, *, quick: bool = False, known: Program | None = None) -> Program:
        """The fastest program that was found: with all fusions, unless their bytes do not fit or fewer fusions are
        faster. `known`: the result of compile_fused()."""
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
        if program.seconds <= SETTINGS.fusion_bound_seconds * bound():
            return program
        try:
            faster = less.compile_fused(budget_bytes)
        except BudgetError:
            return program
        return faster if SETTINGS.fusion_seconds * faster.seconds < program.seconds else program
