"""The largest size of a net, such as its batch, that fits a budget under a strategy.

    size      1 ... 109 ...... 397 ...... 406                    jobs are made as they are needed
    plan at         109        397        406
    reaches                    397        406   406              live bytes of that plan at other sizes

A plan names ops, and those of a net are the same at every batch size: a plan of least memory that was made at one size
is measured at others in milliseconds, and reaches the largest of them where it fits.  There the strategy makes a plan
anew, the one that its answer needs too.  Where that reaches further, the search goes on; where it does not, it ends.
Sizes below CLOSE differ more: there the plan is made anew one size beyond the reach.

Placed, a plan may need more than its live bytes.  Then smaller sizes are tried, one by one; of long steps, whose
offsets take long, few are, the first one where the bytes of the placed plan would be within the budget in proportion.

The bytes in use at each op are those of buffers, which grow in proportion to the size or not at all.  So those at two
sizes are a line for each op, and the lines say where the plan ends to fit:

    bytes  |            budget - - - - - - - /- -       a job is made there, to measure the plan.  The size after it
           |                    o  /                    has none where the lines say that the plan is over the budget.
           |   o  /                    /
           |  /        /
           +---+----------------+--------+---- size
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from layermem.errors import InputError
from layermem.job import Job
from layermem.planning.plan import Decision, Plan
from layermem.planning.strategies import get_strategy
from layermem.report.comparison import STRAIGHT, TOO_LARGE, find_largest, middle_of, min_live_bytes, min_memory_plan
from layermem.report.plan_report import PlanReport, evaluate_if_fits
from layermem.utils.units import aligned

RECENT = 3  # sizes at which a plan is measured first, since their jobs are at hand
CLOSE = 16  # a size from which on the next one is so near that a plan made there would need hardly less
FAR = 8  # numbers between two sizes from which on what alignment adds is little beside the growth
MAX_TRIED_OPS = 16_000  # of steps that are placed one after the other
MOST = 2**40  # above all numbers
STEEP = 0.98  # of the growth that lines foretell: alignment and workspace may take a little off the next step


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
        self._less: Fitting | None = None  # over jobs with fewer fusions
        self.reached = 1  # the largest number that a strategy has reached: the next one begins there

    def fit(self, strategy: str, at_least: int = 0, *, is_largest: bool = False) -> Fit:
        """The fit of `strategy`; the first `at_least` of the sizes are known to fit, and no others if `is_largest`."""
        return self._larger(self._fit_same_ops(strategy, at_least, is_largest), strategy)

    def _larger(self, fit: Fit, strategy: str) -> Fit:
        """`fit`, or that of steps with fewer fusions (graph/rewrite.py) where these reach further."""
        number = self.sizes.index(fit.size) + 1 if fit.size else 0
        less = self._less_fused(number)
        if less is None or number == len(self.sizes):
            return fit
        if less._measure(number + 1, strategy) <= self.budget_bytes:
            fit = max(fit, less._fit_same_ops(strategy, number + 1), key=lambda each: each.size)
        return less._larger(fit, strategy)

    def _less_fused(self, number: int) -> Fitting | None:
        """The same over jobs with fewer fusions, if those of this size, or the first one, have some: that follows from
        the types of layers."""
        if self._less is None and self._has_less(number):
            self._less = Fitting(
                lambda size: self.make(size).less_fused or self.make(size),
                self.sizes,
                self.budget_bytes,
                same_ops=self.same_ops,
            )
        return self._less

    def _has_less(self, number: int) -> bool:
        try:
            return self.make(self.sizes[max(0, number - 1)]).less_fused is not None
        except InputError:  # a blob exceeds 2^31 - 1 values
            return False

    def _measure(self, number: int, strategy: str) -> int:
        """The fewest live bytes of a size."""
        try:
            return min_live_bytes(self._job(number), strategy)
        except InputError:  # a blob exceeds 2^31 - 1 values
            return TOO_LARGE

    def _fit_same_ops(self, strategy: str, at_least: int, is_largest: bool = False) -> Fit:
        try:
            return self._fit(strategy, at_least, is_largest)
        except _OtherOps:
            self.same_ops = False
            return self._fit(strategy, at_least, is_largest)

    def _fit(self, strategy: str, at_least: int, is_largest: bool) -> Fit:
        measure = partial(self._measure, strategy=strategy)
        if at_least and is_largest:
            number = at_least
        elif self.same_ops:
            number = self._largest(strategy, at_least)
        else:
            number = find_largest(measure, self.budget_bytes, len(self.sizes), at_least)
        tries = 0
        while number:
            outcome = evaluate_if_fits(self._job(number), strategy, self.budget_bytes)
            if isinstance(outcome, PlanReport):
                return Fit(strategy, self.sizes[number - 1], outcome)
            tries += 1
            if tries == self._tries(number):
                return self._fit_below(strategy, number, outcome, tries)
            live_bytes = measure(number)
            if live_bytes <= self.budget_bytes:  # fragmentation needs a little more
                number -= 1
            else:  # a plan of another size is smaller than those made here
                number = find_largest(measure, self.budget_bytes, number - 1, known=[(number, live_bytes)])
        return Fit(strategy, 0, None)

    def _tries(self, number: int) -> int:
        """How many sizes are placed in turn, where larger ones do not fit by a little: few of long steps."""
        return max(1, MAX_TRIED_OPS // len(self._job(number).graphs[0].ops))

    def _fit_below(self, strategy: str, number: int, nbytes: int, tries: int) -> Fit:
        """The fit below `number`, whose smallest program takes `nbytes`, more than the budget: where the bytes that
        grow would be within it, in proportion, then between sizes that fit and that do not, while `tries` remain."""
        best, low, high = Fit(strategy, 0, None), 0, number
        while high - low > 1 and (tries > 1 or not low):
            guess = (low + high) // 2
            if not low:
                persistent = sum(aligned(b.nbytes) for b in self._job(high).graphs[0].persistent())
                share = max(0, self.budget_bytes - persistent) / max(1, nbytes - persistent)
                guess = min(max(int(high * share), 1), high - 1)
            else:
                tries -= 1
            outcome = evaluate_if_fits(self._job(guess), strategy, self.budget_bytes)
            if isinstance(outcome, PlanReport):
                best, low = Fit(strategy, self.sizes[guess - 1], outcome), guess
            else:
                high, nbytes = guess, outcome
        return best

    def _largest(self, strategy: str, at_least: int) -> int:
        """The largest number at which live bytes fit, where all sizes have the same ops."""
        low, high = at_least, len(self.sizes) + 1  # low fits, high does not
        made: set[int] = set()
        first = at_least if at_least >= CLOSE else at_least + 1 if at_least else self._first(strategy)
        number = min(first, high - 1)
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
            number = low if low >= CLOSE and not _is_of_one_size(plan, job) else low + 1
        self.reached = max(self.reached, low)
        return low

    def _first(self, strategy: str) -> int:
        """The number to begin at, where none is known to fit."""
        near = get_strategy(strategy).fit_near
        if self.reached > 1 or not near:
            return self.reached
        try:
            plan = min_memory_plan(self._job(1), near)
        except InputError:  # a blob exceeds 2^31 - 1 values
            return 1
        lines = self._lines(plan, {1: self._job(1).train_arena.live_bytes(plan)})
        return max(1, lines.last_within(self.budget_bytes))

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

        points = dict([known])
        for number in self.recent:
            if number != known[0]:
                points[number] = measure(number)
        # Copies hold bytes for as long as they take, which is no line.
        is_straight = Decision.OFFLOAD not in plan.decisions.values()
        low = max([low, *(n for n, nbytes in points.items() if n < high and nbytes <= self.budget_bytes)])
        high = min([high, *(n for n, nbytes in points.items() if n > low and nbytes > self.budget_bytes)])
        turn = 0
        while high - low > 1:
            lines = self._lines(plan, points)
            if is_straight and low in points and lines.say_is_last(low, points[low], self.budget_bytes):
                break
            halve = (turn >= STRAIGHT and turn % 2 == 0) or points.get(high) == TOO_LARGE
            guess = middle_of(low, high) if halve else min(max(lines.last_within(self.budget_bytes), low + 1), high - 1)
            nbytes = points[guess] = measure(guess)
            low, high = (guess, high) if nbytes <= self.budget_bytes else (low, guess)
            turn += 1
        return low

    def _lines(self, plan: Plan, points: dict[int, int]) -> Lines:
        """The lines through the size at which `plan` needs the most like the budget and another one, not too near."""
        near, *others = sorted(
            (number for number in points if points[number] < TOO_LARGE),
            key=lambda number: abs(points[number] - self.budget_bytes),
        )
        others = [number for number in others if abs(number - near) >= FAR] or others[-1:]
        ends = [(number, self._job(number).train_arena.live_profile(plan)) for number in (near, *others[:1])]
        if len(ends) == 1:  # as if all but persistent buffers grew in proportion
            persistent = sum(aligned(b.nbytes) for b in self._job(near).graphs[0].persistent())
            ends.append((0, [persistent] * len(ends[0][1])))
        return Lines(ends[0], ends[1])

    def _job(self, number: int) -> Job:
        job = self.make(self.sizes[number - 1])
        if self.same_ops:
            ops = [op.name for op in job.graphs[0].ops]
            self.ops = self.ops or ops
            if ops != self.ops:
                raise _OtherOps
        self.recent = [*(each for each in self.recent if each != number), number][-RECENT:]
        return job


class Lines:
    """Bytes in use at each op, at two numbers and along the line through them."""

    def __init__(self, near: tuple[int, Sequence[int]], far: tuple[int, Sequence[int]]):
        self.number, self.bytes = near[0], np.array(near[1], np.float64)
        self.distance = abs(near[0] - far[0])
        self.growth: npt.NDArray[np.float64] = (self.bytes - np.array(far[1], np.float64)) / (near[0] - far[0])

    def last_within(self, budget_bytes: int) -> int:
        """The last number at which all are within the budget, at most the largest that there is."""
        rising = self.growth > 0
        steps = (budget_bytes - self.bytes[rising]) / self.growth[rising]
        return self.number + int(min(steps.min(initial=np.inf), MOST))

    def say_is_last(self, number: int, nbytes: int, budget_bytes: int) -> bool:
        """Whether a plan that takes `nbytes` there is over the budget at the next one."""
        growth = float(np.max(self._at(number + 1)) - np.max(self._at(number)))
        return self.distance >= FAR and nbytes + STEEP * growth > budget_bytes

    def _at(self, number: int) -> npt.NDArray[np.float64]:
        return self.bytes + (number - self.number) * self.growth


class _OtherOps(Exception):
    """A size has other ops: a recurrent layer unrolls as many steps as its batch axis is long."""


def _is_of_one_size(plan: Plan, job: Job) -> bool:
    """Whether a larger size may have no bytes on the host for what the plan copies there."""
    return Decision.OFFLOAD in plan.decisions.values() and job.hints.host_budget_bytes is not None
