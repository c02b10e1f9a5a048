"""Compares strategies: under one budget, and over many budgets.

evaluate_all  returns the reports of strategies under one budget
rank          sorts them: first those that fit, by time; then the others, by the bytes that they need
trade_curve   returns (bytes, overhead) of a strategy at budgets from its minimum to its bytes without a budget, and
              the overhead of its plan for each budget
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import isfinite
from typing import NamedTuple

from layermem.errors import BudgetError, InputError
from layermem.planning.bounds import least_bytes, least_seconds_of
from layermem.planning.job import Budget, Job
from layermem.planning.pipeline import Compiler
from layermem.planning.plan import Plan
from layermem.planning.registry import MINIMUM_MEMORY
from layermem.planning.strategies import STRATEGIES, get_strategy
from layermem.report.plan_report import PlanReport, evaluate
from layermem.utils.parallel import run_both

POINTS = 12  # budgets of a curve
MAX_PLACED_OPS = 3000  # plans of larger steps are not placed for a curve

Curve = list[tuple[int, float]]  # (bytes, overhead against the baseline)


def select_strategies(names: str | None) -> list[str]:
    """The strategies that a user selects: "a,b", "all", or None for the default ones."""
    if names == "all":
        return list(STRATEGIES)
    if names is None:
        return [entry.name for entry in STRATEGIES.values() if entry.compare_by_default]
    selected = [get_strategy(name.strip()).name for name in names.split(",") if name.strip()]
    if not selected:
        raise InputError(f"no strategy in '{names}' (choose from {', '.join(STRATEGIES)})")
    return list(dict.fromkeys(selected))


def evaluate_all(
    job: Job, names: Sequence[str], budget: Budget, show: Callable[[str, int], None] = lambda name, done: None
) -> list[PlanReport]:
    """The reports of strategies, in the order of `names`; `show` is called with the next one and the number complete.

    Strategies that plan the graph with fused updates share no caches with the others, so both groups run at the same
    time.  The reports are the same as in sequence.
    """
    budget_bytes = job.resolve_budget(budget)
    reports: dict[str, PlanReport] = {}

    def evaluate_each(job: Job, names: Sequence[str]) -> None:
        for name in names:
            show(name, len(reports))
            reports[name] = evaluate(job, name, budget_bytes)

    fusing = [name for name in names if get_strategy(name).fuses_updates and not job.has_auto]
    others = [name for name in names if name not in fusing]
    if fusing and others:
        run_both(lambda: evaluate_each(job, others), lambda: evaluate_each(replace(job), fusing))
    else:
        evaluate_each(job, names)
    return [reports[name] for name in names]


def rank(reports: Iterable[PlanReport]) -> list[PlanReport]:
    return sorted(reports, key=lambda r: (not r.feasible, r.seconds if r.feasible else 0.0, r.peak_bytes))


class Trade(NamedTuple):
    """The time cost of memory under a strategy.

    curve    peak and overhead of plans from the smallest to the fastest, without those that another one equals in both
    within   the overhead of the plan for each budget that has one: what `layermem plan` gives for that budget
    """

    curve: Curve
    within: dict[int, float]


def trade_curve(job: Job, strategy: str, budgets_bytes: Sequence[int], between: Sequence[int] = ()) -> Trade:
    """The predicted cost in time of each budget, with points of the curve for budgets `between` them.

    Steps of many ops are not placed: points are then live bytes, and seconds as if every byte that a copy frees were
    needed at once.
    """
    arena = job.train_arena if len(job.graphs[0].ops) > MAX_PLACED_OPS else job.arena
    compiler = Compiler(arena, strategy, job.hints)
    points, within = [], {}
    for budget_bytes in (None, MINIMUM_MEMORY, *between):
        points.append(_point(job, compiler, budget_bytes))
    for budget_bytes in budgets_bytes:
        try:
            nbytes, overhead = _planned(job, compiler, budget_bytes)
        except BudgetError:
            continue
        points.append((nbytes, overhead))
        if nbytes <= budget_bytes:
            within[budget_bytes] = overhead
    return Trade(pareto_front(points), within)


def _planned(job: Job, compiler: Compiler, budget_bytes: int) -> tuple[int, float]:
    """Bytes and overhead of what `layermem plan` gives for a budget; BudgetError where nothing fits it."""
    if len(job.graphs[0].ops) > MAX_PLACED_OPS:
        return _point(job, compiler, budget_bytes)
    program = compiler.compile(budget_bytes, quick=True)
    return program.arena_bytes, overhead_of(job, program.seconds)


def _point(job: Job, compiler: Compiler, budget_bytes: int | None) -> tuple[int, float]:
    """Bytes and overhead of the first plan for a budget."""
    plan = compiler.search.plan_of(compiler.search.entry, budget_bytes)
    if len(job.graphs[0].ops) > MAX_PLACED_OPS:
        return compiler.arena.live_bytes(plan), overhead_of(job, compiler.arena.estimate_seconds(plan))
    program = compiler.build(plan, target_bytes=budget_bytes or 0)
    return program.arena_bytes, overhead_of(job, program.seconds)


def bound_curve(job: Job, budgets_bytes: Sequence[int]) -> Curve:
    """The lower bound of the overhead at each budget within which a plan may exist."""
    bounds = least_seconds_of(job.graphs[0], job.costs, budgets_bytes, job.hints.host_budget_bytes)
    return [(nbytes, overhead_of(job, seconds)) for nbytes, seconds in zip(budgets_bytes, bounds) if isfinite(seconds)]


def overhead_of(job: Job, seconds: float) -> float:
    """The additional time of a step as a share of the baseline's; 0 if costs say that the baseline takes no time."""
    return seconds / job.baseline_seconds - 1 if job.baseline_seconds else 0.0


def budget_grid(job: Job, points: int = POINTS) -> list[int]:
    """Budgets from the lower bound of all plans to the bytes of strategy `liveness`, in equal ratios."""
    most_bytes = job.train_arena.live_bytes(_plan(job, "liveness", None))
    fewest_bytes = min(least_bytes(job.graphs[0], job.hints.host_budget_bytes), most_bytes)
    return [round(fewest_bytes * (most_bytes / fewest_bytes) ** (step / (points - 1))) for step in range(points)]


def min_live_bytes(job: Job, strategy: str) -> int:
    """The fewest live bytes of a strategy's plans for the training step, with all fusions or with fewer."""
    nbytes = job.train_arena.live_bytes(_plan(job, strategy, MINIMUM_MEMORY))
    return nbytes if job.less_fused is None else min(nbytes, min_live_bytes(job.less_fused, strategy))


def _plan(job: Job, strategy: str, budget_bytes: int | None) -> Plan:
    return get_strategy(strategy).make(job.graphs[0], job.costs, budget_bytes, job.train_arena, job.hints)


def pareto_front(points: Iterable[tuple[int, float]]) -> Curve:
    """The points, by bytes, to which no other point is equal or better in both bytes and time."""
    kept: Curve = []
    for nbytes, overhead in sorted(set(points)):
        if not kept or overhead < kept[-1][1] - 1e-12:
            kept.append((nbytes, overhead))
    return kept
