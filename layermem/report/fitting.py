"""The largest size of a net, such as its batch, that fits a budget under a strategy.

    size      1 ... 109 ...... 397 ...... 406                    jobs are made as they are needed
    plan at         109        397        406
    reaches                    397        406   406              live bytes of that plan at other sizes

A plan names ops, and those of a net are the same at every batch size: a plan of least memory that was made at one size
is measured at others in milliseconds, and reaches the largest of them where it fits.  There the strategy makes a plan
anew, the one that its answer needs too.  Where that reaches further, the search goes on; where it does not, it ends.
Sizes below CLOSE differ more: there the plan is made anew one size beyond the reach.  From CONVEX_FROM on, the size
after the reach has no job where the bytes so far say that the plan is far over the budget there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from layermem.errors import InputError
from layermem.job import Job
from layermem.planning.plan import Decision, Plan
from layermem.report.comparison import TOO_LARGE, find_largest, min_live_bytes, min_memory_plan
from layermem.report.plan_report import PlanReport, evaluate_if_fits

RECENT = 3  # sizes at which a plan is measured first, since their jobs are at hand
CLOSE = 32  # a size from which on the next one is so near that a plan made there would need hardly less
CONVEX_FROM = 16  # a number from which on what alignment adds is little beside the growth of live bytes


@dataclass(frozen=True)
class Fit:
    """The largest `size` under a strategy and its plan within the budget; 0 and None if nothing fits."""

    strategy: str
    size: int
    report: PlanReport | None


class Fitting:
    """Searches of strategies, one after the other, over the same jobs.

    make      the job of a size, kept for the last few
    sizes     those to look at; a number is the place of one, from 1
    same_ops  the nets of all sizes have the same ops, until one is found that has others
    """

    def __init__(self, make: Callable[[int], Job], sizes: Sequence[int], budget_bytes: int, *, same_ops: bool):
        self.make, self.sizes, self.budget_bytes, self.same_ops = make, sizes, budget_bytes, same_ops
        self.ops: list[str] = []  # names of those of the first size that was looked at
        self.recent: list[int] = []  # numbers whose jobs were made last
        self.planned = 1  # the largest number at which a strategy has made a plan: the next one begins there

    def fit(self, strategy: str, at_least: int = 0) -> Fit:
        """The fit of `strategy`; the first `at_least` of the sizes are known to fit."""
        fit = self._fit_same_ops(strategy, at_least)
        number = self.sizes.index(fit.size) + 1 if fit.size else 0
        if number == len(self.sizes) or not self._fits_apart(strategy, number + 1):
            return fit
        larger = self._apart._fit_same_ops(strategy, number + 1)
        return larger if larger.size > fit.size else fit

    @cached_property
    def _apart(self) -> Fitting:
        """The same over jobs without optional fusions."""
        return Fitting(
            lambda size: self.make(size).with_fusions(apart=True), self.sizes, self.budget_bytes, same_ops=self.same_ops
        )

    def _fits_apart(self, strategy: str, number: int) -> bool:
        """Whether the live bytes of a size without optional fusions fit; False where there are none."""
        try:
            job = self.make(self.sizes[number - 1])
        except InputError:  # a blob exceeds 2^31 - 1 values
            return False
        return job.apart is not None and min_live_bytes(job.apart, strategy) <= self.budget_bytes

    def _fit_same_ops(self, strategy: str, at_least: int) -> Fit:
        try:
            return self._fit(strategy, at_least)
        except _OtherOps:
            self.same_ops = False
            return self._fit(strategy, at_least)

    def _fit(self, strategy: str, at_least: int) -> Fit:

        def measure(number: int) -> int:
            try:
                return min_live_bytes(self._job(number), strategy)
            except InputError:  # a blob exceeds 2^31 - 1 values
                return TOO_LARGE

        if self.same_ops:
            number = self._largest(strategy, at_least)
        else:
            number = find_largest(measure, self.budget_bytes, len(self.sizes), at_least)
        while number:
            report = evaluate_if_fits(self._job(number), strategy, self.budget_bytes)
            if report is not None:
                return Fit(strategy, self.sizes[number - 1], report)
            live_bytes = measure(number)
            if live_bytes <= self.budget_bytes:  # fragmentation needs a little more
                number -= 1
            else:  # a plan of another size is smaller than those made here
                number = find_largest(measure, self.budget_bytes, number - 1, known=[(number, live_bytes)])
        return Fit(strategy, 0, None)

    def _largest(self, strategy: str, at_least: int) -> int:
        """The largest number at which live bytes fit, where all sizes have the same ops."""
        low, high = at_least, len(self.sizes) + 1  # low fits, high does not
        made: set[int] = set()
        number = min(at_least if at_least >= CLOSE else at_least + 1 if at_least else self.planned, high - 1)
        while high - low > 1 and number not in made:
            try:
                job = self._job(number)
            except InputError:  # a blob exceeds 2^31 - 1 values
                high = number
                continue
            made.add(number)
            plan = min_memory_plan(job, strategy)
            nbytes = job.train_arena.live_bytes(plan)
            low, high = (max(low, number), high) if nbytes <= self.budget_bytes else (low, max(low + 1, number))
            low = self._reach(plan, (number, nbytes), low, high)
            self.planned = max(self.planned, number)
            number = low if low >= CLOSE and not _is_of_one_size(plan, job) else low + 1
        return low

    def _reach(self, plan: Plan, known: tuple[int, int], low: int, high: int) -> int:
        """The largest number below `high` at which `plan` fits, `low` if there is none; `known` is one with its live
        bytes."""

        def measure(number: int) -> int:
            try:
                job = self._job(number)
            except InputError:
                return TOO_LARGE
            if number > known[0] and _is_of_one_size(plan, job):
                return TOO_LARGE
            return job.train_arena.live_bytes(plan)

        points = [known, *((number, measure(number)) for number in self.recent if number != known[0])]
        # Live bytes are the most of many sums, each on a line: their slope only rises.  Copies take as long as they do.
        convex_from = None if Decision.OFFLOAD in plan.decisions.values() else CONVEX_FROM
        return find_largest(measure, self.budget_bytes, high - 1, low, points, convex_from)

    def _job(self, number: int) -> Job:
        job = self.make(self.sizes[number - 1])
        if self.same_ops:
            ops = [op.name for op in job.graphs[0].ops]
            self.ops = self.ops or ops
            if ops != self.ops:
                raise _OtherOps
        self.recent = [*(each for each in self.recent if each != number), number][-RECENT:]
        return job


class _OtherOps(Exception):
    """A size has other ops: a recurrent layer unrolls as many steps as its batch axis is long."""


def _is_of_one_size(plan: Plan, job: Job) -> bool:
    """Whether a larger size may have no bytes on the host for what the plan copies there."""
    return Decision.OFFLOAD in plan.decisions.values() and job.hints.host_budget_bytes is not None
