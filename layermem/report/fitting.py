"""Finds the largest size of a net, such as its batch, that fits a budget: by doubling, then by bisection.

size    1  2  4 ... 256 | 512        live bytes of the plan of least memory are within the budget | above it
              256 ... 405 | 406
placed              404 | 405        offsets may need a few bytes more: then the next smaller size is placed
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from layermem.errors import InputError
from layermem.planning.job import Job
from layermem.report.comparison import min_live_bytes
from layermem.report.plan_report import PlanReport, evaluate_if_fits

TRIES = 64  # sizes placed in sequence before the range below is bisected again


@dataclass(frozen=True)
class Fit:
    """The largest `size` under a strategy and its plan within the budget; 0 and None if nothing fits."""

    strategy: str
    size: int
    report: PlanReport | None


def find_fit(make: Callable[[int], Job], sizes: Sequence[int], strategy: str, budget_bytes: int, start: int = 0) -> Fit:
    """The fit of `strategy` among the jobs that `make` returns for `sizes`; the search begins at the size `start` if
    given."""
    reports: dict[int, PlanReport] = {}

    def fits_live(number: int) -> bool:
        try:
            return min_live_bytes(make(sizes[number - 1]), strategy) <= budget_bytes
        except InputError:  # a blob exceeds 2^31 - 1 values
            return False

    def fits_placed(number: int) -> bool:
        outcome = evaluate_if_fits(make(sizes[number - 1]), strategy, budget_bytes)
        if isinstance(outcome, PlanReport):
            reports[number] = outcome
        return isinstance(outcome, PlanReport)

    number = largest(fits_live, len(sizes), sizes.index(start) + 1 if start else 1)
    last = max(0, number - TRIES)
    while number > last and not fits_placed(number):
        number -= 1
    if number and number not in reports:
        number = largest(fits_placed, number, number)
    return Fit(strategy, sizes[number - 1], reports[number]) if number else Fit(strategy, 0, None)


def largest(fits: Callable[[int], bool], most: int, start: int = 1) -> int:
    """The largest number from 1 to `most` that fits, or 0; if a number fits, all smaller ones must fit.  `start` and
    its neighbour are tried first; then numbers are doubled until the answer lies between two of them, and the range
    is bisected."""
    low, high, number = 0, most + 1, start  # `low` fits, `high` does not
    while low < high - 1:
        low, high = (number, high) if fits(number) else (low, number)
        if low and high <= most:
            number = (low + high) // 2
        elif number == start:
            number = min(low + 1, most) if low else high - 1
        else:
            number = min(2 * low, most) if low else high // 2
    return low
