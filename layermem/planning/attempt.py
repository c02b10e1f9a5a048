"""A job under a strategy and a budget: the unit that the search for slices compares, and the result of planning."""

from __future__ import annotations

from dataclasses import dataclass, replace

from layermem.errors import BudgetError
from layermem.planning.fusion_search import FusionSearch
from layermem.planning.job import Job
from layermem.planning.registry import Choice
from layermem.schedule.program import Program


@dataclass(frozen=True)
class Attempt:
    """`compiled` is the program, once it exists, or `refusal` explains that nothing fits.

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
