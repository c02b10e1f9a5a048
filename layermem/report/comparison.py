"""Strategies side by side: each under one budget, each over many budgets, and how much of a net each one fits.

ranked      those that fit come first, the quickest first; then the others, those that need least first
trade       (bytes, overhead) of a strategy at budgets from its least to what it takes without one
largest     the largest batch, or depth, that a budget holds
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from layermem.compiler import MINIMUM_MEMORY
from layermem.errors import InputError
from layermem.planning.bounds import least_bytes, least_seconds
from layermem.planning.strategies import STRATEGIES, get_strategy
from layermem.report.plan_report import Job, PlanReport
from layermem.schedule.arena_planner import ArenaPlanner

SLOW = ("recompute-exact",)  # may search for 20 seconds: only where it is named, or all are
POINTS = 12  # budgets of a trade
PLACED = 3000  # ops of a step up to which its plans are placed for a trade
STRAIGHT = 6  # guesses on a line before any other
TOO_LARGE = 2**62  # bytes of what cannot even be built


def select_strategies(names: str | None) -> list[str]:
    """Strategies that a user asks for: "a,b", "all", or nothing, which means all but the slow ones."""
    if names == "all":
        return list(STRATEGIES)
    if names is None:
        return [name for name in STRATEGIES if name not in SLOW]
    found = [get_strategy(name.strip()).name for name in names.split(",") if name.strip()]
    if not found:
        raise InputError(f"'{names}' names no strategy; choose of: {' '.join(STRATEGIES)}")
    return list(dict.fromkeys(found))


def rank(founds: Iterable[PlanReport]) -> list[PlanReport]:
    return sorted(founds, key=lambda f: (not f.feasible, f.seconds if f.feasible else 0.0, f.peak_bytes))


def trade_curve(job: Job, strategy: str, budgets: Sequence[int]) -> list[tuple[int, float]]:
    """What memory costs in time: peak and overhead against the baseline at each budget.

    Points that take more bytes and more time than another one are left out.  Steps of many ops are not placed: then
    it is bytes in use, and seconds as if every byte that a copy frees were wanted at once.
    """
    train = job.graphs[0]
    alone = ArenaPlanner([train], job.costs)
    make = get_strategy(strategy).make
    found = []
    for budget in (None, MINIMUM_MEMORY, *budgets):
        plan = make(train, job.costs, budget, alone, job.hints)
        if len(train.ops) > PLACED:
            nbytes, seconds = alone.live_bytes(plan), alone.estimate_seconds(plan)
        else:
            program = alone.place(plan, target=budget or 0)
            nbytes, seconds = program.arena_bytes, program.timeline().seconds
        found.append((nbytes, seconds / job.baseline_seconds - 1))
    return pareto_front(found)


def bound_curve(job: Job, budgets: Sequence[int]) -> list[tuple[int, float]]:
    """The overhead below which no plan goes, at each budget."""
    train = job.graphs[0]
    return [(budget, least_seconds(train, job.costs, budget) / job.baseline_seconds - 1) for budget in budgets]


def budget_grid(job: Job, points: int = POINTS) -> list[int]:
    """Budgets from what no plan goes below to what reuse alone takes, in equal ratios."""
    train = job.graphs[0]
    alone = ArenaPlanner([train], job.costs)
    most = alone.live_bytes(get_strategy("liveness").make(train, job.costs, None, alone, job.hints))
    least = min(least_bytes(train), most)
    return [round(least * (most / least) ** (step / (points - 1))) for step in range(points)]


def pareto_front(points: Iterable[tuple[int, float]]) -> list[tuple[int, float]]:
    """The points beside which no other takes fewer bytes and no more time, by bytes."""
    kept: list[tuple[int, float]] = []
    for nbytes, overhead in sorted(set(points)):
        if not kept or overhead < kept[-1][1] - 1e-12:
            kept.append((nbytes, overhead))
    return kept


def min_live_bytes(job: Job, strategy: str) -> int:
    """Bytes in use under the leanest plan of a strategy, without placement."""
    train = job.graphs[0]
    alone = ArenaPlanner([train], job.costs)
    return alone.live_bytes(get_strategy(strategy).make(train, job.costs, MINIMUM_MEMORY, alone, job.hints))


def find_largest(measure: Callable[[int], int], budget: int, most: int, at_least: int = 0) -> int:
    """The largest n from 1 to `most` with measure(n) <= budget, for a measure that does not fall; 0 if there is none.
    `at_least` is known to fit.

    Bytes grow along a line, more or less, so the next guess lies on the line through the last two points; in case they
    do not, every other guess halves what is left once STRAIGHT of them have not ended the search.
    """
    low, high = at_least, most + 1  # low fits, high does not
    points: list[tuple[int, int]] = []
    guess, turn = at_least + 1, 0
    while high - low > 1:
        nbytes = measure(guess)
        points.append((guess, nbytes))
        low, high = (guess, high) if nbytes <= budget else (low, guess)
        turn += 1
        halve = turn >= STRAIGHT and turn % 2 == 0
        guess = _middle(low, high) if halve else _on_line(points, budget, low, high)
    return low


def _middle(low: int, high: int) -> int:
    """Halfway, by ratio while the range is wide."""
    return min(
        max(round((max(low, 1) * high) ** 0.5) if high > 4 * max(low, 1) else (low + high) // 2, low + 1), high - 1
    )


def _on_line(points: Sequence[tuple[int, int]], budget: int, low: int, high: int) -> int:
    known = [point for point in points if point[1] < TOO_LARGE][-2:]
    if len(known) == 1 and 0 < known[0][1] <= budget:  # half of what would fit if bytes grew in proportion: a long line
        guess = known[0][0] * budget // known[0][1] // 2
    elif len(known) < 2 or known[0][1] == known[1][1]:
        guess = max(2 * low, 2)
    else:
        (x0, y0), (x1, y1) = known
        guess = x0 + (budget - y0) * (x1 - x0) // (y1 - y0)
    return min(max(guess, low + 1), high - 1)
