"""Finds the largest size of a net, such as its batch, that fits a budget: by doubling, then by bisection.

size    1  2  4 ... 256 | 512        live bytes of the plan of least memory are within the budget | above it
              256 ... 405 | 406
placed              404 | 405        offsets may need a few bytes more: then the next smaller size is placed
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from layermem.errors import InputError
from layermem.graph.step_slicer import Slices
from layermem.planning.job import AUTO, OFF, Job
from layermem.planning.registry import get_strategy
from layermem.report.comparison import min_live_bytes
from layermem.report.plan_report import PlanReport, evaluate_if_fits

JOBS_KEPT = 32  # jobs of the last sizes: strategies try the same ones
MAX_ITEMS = 1_000_000  # the largest batch that is tried
TRIES = 64  # sizes placed in sequence before the range below is bisected again


@dataclass(frozen=True)
class Fit:
    """The largest `size` under a strategy and its plan within the budget; 0 and None if nothing fits."""

    strategy: str
    size: int
    report: PlanReport | None

    @property
    def items_per_second(self) -> float:
        """Items in a second, as predicted, if the size is a batch."""
        return self.size / self.report.seconds if self.report else 0.0


MakeJob = Callable[[int], Job]  # by size
Shapes = Mapping[str, tuple[int, ...]]
JobOf = Callable[[int | None, Shapes], Job]  # by batch size and shapes of inputs


def jobs_by_batch(make: JobOf, inputs: Shapes) -> tuple[MakeJob, Callable[[int], tuple[int | None, Shapes]]]:
    """Functions from batch size to job, and to the arguments of `make` for it; `inputs` are shapes that the user gives.
    Recurrent nets grow in sequences.  InputError, before any search, if there is no job."""
    first = make(1, {name: (1, *shape[1:]) for name, shape in inputs.items()})
    whole = make(None, inputs).nets[0] if first.nets[0].shapes_with_streams(1) else None

    def shapes(batch: int) -> tuple[int | None, Shapes]:
        if whole is not None:
            return None, whole.shapes_with_streams(batch)
        return batch, {name: (batch, *shape[1:]) for name, shape in inputs.items()}

    return lru_cache(JOBS_KEPT)(lambda batch: make(*shapes(batch))), shapes


def jobs_in_slices(
    make: MakeJob, sizes: range, slices: str | None, split_weights: str | None, *, are_batches: bool = True
) -> tuple[MakeJob, range]:
    """A function from size to job in the slices and with the split weights that a user names, and those of `sizes` that
    the slices divide equally if sizes are batches.  InputError, before any search, if there is no such job."""
    wanted = {"slices": slices or OFF, "split weights": split_weights or OFF}
    for name, value in wanted.items():
        if value == AUTO:
            raise InputError(f"{name} 'auto' depend on the batch, which fit looks for; name layers and a count instead")
    named = Slices.of(*("" if value == OFF else value for value in wanted.values()))
    if not str(named):
        return make, sizes
    count = named.batch_slices if are_batches else 1
    if sizes[-1] < count:
        raise InputError(f"a batch of at most {sizes[-1]} is too small for {count} slices; allow {count} or more")
    sizes = range(count, sizes[-1] + 1, count) if count > 1 else sizes
    make(sizes[0]).in_slices(str(named))  # raises InputError now; during the search it means "too large"
    return lru_cache(JOBS_KEPT)(lambda size: make(size).in_slices(str(named))), sizes


def find_fits(
    make: MakeJob,
    sizes: Sequence[int],
    names: Sequence[str],
    budget_bytes: int,
    show: Callable[[str, int, int], None] = lambda name, size, done: None,
) -> list[Fit]:
    """The fits of all strategies, the largest first.  Each search begins at the size of the previous one; strategies
    that combine others come last and begin at the largest size.  `show` is called with each strategy and size."""
    fits: dict[str, Fit] = {}
    for name in sorted(names, key=lambda each: get_strategy(each).combines_others):

        def make_and_show(size: int, name: str = name) -> Job:
            show(name, size, len(fits))
            return make(size)

        sizes_so_far = [fit.size for fit in fits.values()] or [0]
        start = max(sizes_so_far) if get_strategy(name).combines_others else sizes_so_far[-1]
        fits[name] = find_fit(make_and_show, sizes, name, budget_bytes, start)
    return largest_first([fits[name] for name in names])


def largest_first(fits: Sequence[Fit]) -> list[Fit]:
    return sorted(fits, key=lambda fit: (-fit.size, fit.report.seconds if fit.report else 0.0))


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
