"""Plans a job with all fusions of its step, and with fewer of them, which need fewer bytes (graph/rewrite.py)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property

from layermem.errors import BudgetError
from layermem.planning.bounds import least_seconds_once
from layermem.planning.budget_search import BudgetSearch
from layermem.planning.hints import Hints
from layermem.planning.job import Job
from layermem.planning.plan import Plan
from layermem.planning.registry import SAVED_PLAN, Choice, as_entry
from layermem.planning.settings import SETTINGS
from layermem.schedule.arena_planner import ArenaPlanner
from layermem.schedule.program import Program


class FusionSearch(ABC):
    """Searches programs of the graphs of `arena`, which caches results, under a strategy or a saved plan, for any
    budget.  What is done with one plan is in planning/pipeline.py."""

    def __init__(self, arena: ArenaPlanner, strategy: Choice, hints: Hints = Hints()):
        self.arena, self.strategy, self.hints = arena, strategy, hints
        self.search = BudgetSearch(as_entry(strategy), arena.graphs[0], arena.costs, arena, hints, self.build)

    @abstractmethod
    def build(self, plan: Plan, target_bytes: int = 0) -> Program:
        """Place one plan; the search for offsets ends once they need at most `target_bytes`."""

    @abstractmethod
    def compile_fused(self, budget_bytes: int | None, *, quick: bool = False) -> Program:
        """The fastest program that was found with all fusions; BudgetError, with the minimum, if none fits.  `quick`:
        without a search for the minimum."""

    @abstractmethod
    def checked(self, program: Program) -> Program:
        """`program`, whose schedules are proven to be safe."""

    # -- fewer fusions -----------------------------------------------------------------------------------------

    @cached_property
    def less_fused(self) -> FusionSearch | None:
        """The search in the step with fewer fusions; None if there are none to omit, or if the plan is a saved
        one."""
        arena = self.arena.less_fused
        if arena is None or self.search.entry.name == SAVED_PLAN:
            return None
        return type(self)(arena, self.strategy, self.hints)

    @property
    def smallest(self) -> FusionSearch:
        """The search with the smallest program: this one, or one with fewer fusions."""
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


@dataclass(frozen=True)
class Attempt:
    """A job under a strategy and a budget: the unit that the search for slices compares, and the result of planning.
    `compiled` is the program, once it exists, or `refusal` explains that nothing fits.

    found_for_bytes   the other budget for which the program was found before (planning/kept_plans.py), if it was
    """

    job: Job
    strategy: Choice
    budget_bytes: int | None
    compiler: FusionSearch
    compiled: Program | None = None
    refusal: BudgetError | None = None
    found_for_bytes: int | None = None

    @classmethod
    def of(cls, job: Job, strategy: Choice, budget_bytes: int | None, compiler: type[FusionSearch]) -> Attempt:
        return cls(job, strategy, budget_bytes, compiler(job.arena, strategy, job.hints))

    def with_job(self, job: Job) -> Attempt:
        """An attempt with the same strategy and budget for another job."""
        return Attempt.of(job, self.strategy, self.budget_bytes, type(self.compiler))

    @property
    def program(self) -> Program:
        """The program of an attempt that has one."""
        assert self.compiled is not None
        return self.compiled

    def fitting(self) -> Attempt | None:
        """The attempt with its program with all fusions; None if nothing fits.  A search compares only these programs:
        fewer fusions are tried once, for the attempt that it chooses."""
        try:
            program = self.compiled or self.compiler.compile_fused(self.budget_bytes)
        except BudgetError:
            return None
        return replace(self, compiled=program)

    def with_chosen_fusions(self, *, quick: bool = False) -> Attempt:
        """The attempt with its program, with all fusions or with fewer, or with its refusal.  `quick`: without a search
        for the minimum."""
        try:
            return replace(self, compiled=self.compiler.compile(self.budget_bytes, quick=quick, known=self.compiled))
        except BudgetError as error:
            return replace(self, refusal=error)
