"""A job under a strategy and a budget: the unit that searches for slices and for fusions compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from layermem.errors import BudgetError
from layermem.planning.fusion_choice import FusionChoice
from layermem.planning.hints import Hints
from layermem.planning.job import Job
from layermem.planning.registry import Choice
from layermem.schedule.arena_planner import ArenaPlanner
from layermem.schedule.program import Program


@dataclass(frozen=True)
class Attempt:
    """`make` returns the `compiler` of a job; `compiled` is its program, once it exists."""

    job: Job
    strategy: Choice
    budget_bytes: int | None
    make: Callable[[ArenaPlanner, Choice, Hints], FusionChoice]
    compiler: FusionChoice
    compiled: Program | None = None

    @classmethod
    def of(
        cls,
        job: Job,
        strategy: Choice,
        budget_bytes: int | None,
        make: Callable[[ArenaPlanner, Choice, Hints], FusionChoice],
    ) -> Attempt:
        return cls(job, strategy, budget_bytes, make, make(job.arena, strategy, job.hints))

    def with_job(self, job: Job) -> Attempt:
        """An attempt with the same strategy and budget for another job."""
        return Attempt.of(job, self.strategy, self.budget_bytes, self.make)

    def program(self) -> Program:
        """The program within the budget; BudgetError if none fits."""
        return self.compiler.compile(self.budget_bytes, known=self.compiled)

    @property
    def fused(self) -> Program:
        """The program that fitting() found.  A search compares only these programs: fewer fusions are tried once, for
        the attempt that it chooses."""
        assert self.compiled is not None
        return self.compiled

    def fitting(self) -> Attempt | None:
        """The attempt with its program with all fusions; None if nothing fits."""
        try:
            program = self.compiled or self.compiler.compile_fused(self.budget_bytes)
        except BudgetError:
            return None
        return replace(self, compiled=program)
