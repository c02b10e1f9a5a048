"""The strategies of a page: each under the budget, over many budgets, and the least bytes of each.

    rows      a strategy under the budget: first those that fit, by time; then the others, by bytes
    curves    peak bytes and predicted seconds of plans that no other plan beats in both
    bound     lower bound of seconds at each of `budgets`
    memory    live bytes over the step, one line per strategy; none if the step is too deep
    left_out  results that were not computed, with the option that requests each

A step of more than MAX_PLACED_OPS ops takes seconds for each plan.  Then fewer strategies and budgets are compared,
and their plans are not placed: bytes are live bytes, which placement exceeds by 0.3 % at most
(`layermem docs benchmarks/planning`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from layermem.errors import InputError
from layermem.planning.job import Job
from layermem.planning.strategies import STRATEGIES, get_strategy
from layermem.report.comparison import (
    MAX_PLACED_OPS,
    Curve,
    Trade,
    bound_curve,
    budget_grid,
    min_live_bytes,
    overhead_of,
    pareto_front,
    rank,
    select_strategies,
    trade_curve,
)
from layermem.report.memory import live_bytes, spans
from layermem.report.plan_report import PlanReport, evaluate

POINTS, DEEP_POINTS = 12, 4  # budgets of a curve
MAX_POINTS = 100
DEEP = ("caffe", "liveness", "sublinear", "recompute")  # strategies that plan a deep net in seconds
STEPS = 1500  # points of a curve of memory over time: two columns each
Progress = Callable[[str, int], None]  # (current activity, number of complete strategies)


def is_deep(job: Job) -> bool:
    return len(job.graphs[0].ops) > MAX_PLACED_OPS


def choose_strategies(job: Job, names: str | None) -> list[str]:
    """The strategies that `names` selects, or the default for the size of the net."""
    if names is not None or not is_deep(job):
        return select_strategies(names)
    return [name for name in DEEP if name in STRATEGIES]


def check_points(points: int | None) -> None:
    """Raise InputError for a number of budgets that makes no curve."""
    if points is not None and not 2 <= points <= MAX_POINTS:
        raise InputError(f"--points {points} is no number of budgets; give 2 to {MAX_POINTS}")


def choose_points(job: Job, points: int | None) -> int:
    """The number of budgets of a curve: `points`, or the default for the size of the net."""
    check_points(points)
    return points or (DEEP_POINTS if is_deep(job) else POINTS)


def strategies_page(
    report: PlanReport, names: Sequence[str], points: int, progress: Progress = lambda doing, done: None
) -> dict[str, object]:
    """The section `strategies` of a page: `names` compared with the plan of `report`, over `points` budgets."""
    job = report.job
    budgets = budget_grid(job, points) if not is_deep(job) else _few_budgets(job, points, report.budget_bytes)
    reports: list[PlanReport] = []
    curves: dict[str, Curve] = {}
    within: dict[str, dict[int, float]] = {}
    # Strategies that combine others come last, with the budgets of their best points: the curves are then comparable.
    order = sorted(names, key=lambda name: get_strategy(name).combines_others)
    for done, name in enumerate(order):
        progress(name, done)
        if not is_deep(job):
            same = name == report.strategy
            reports.append(report if same else evaluate(job, name, report.budget_bytes))
        others = pareto_front([point for curve in curves.values() for point in curve])
        combines = get_strategy(name).combines_others and not is_deep(job)
        more = (nbytes for nbytes, _ in others) if combines else ()
        known = reports[-1:] if not is_deep(job) else ()
        trade = trade_curve(job, name, budgets, [nbytes for nbytes in more if nbytes not in budgets])
        curves[name] = pareto_front([*trade.curve, *_placed(job, known)])
        within[name] = trade.within
    progress("", len(order))
    rows = [_row(each) for each in rank(reports)] if reports else _live_rows(job, curves, report)
    if report.strategy not in curves:  # the plan of the page always has a curve
        curves[report.strategy] = [(report.peak_bytes, report.overhead)]
    return {
        **_frame(report, rows),
        "placed": not is_deep(job),
        "least_time": _least_time(within, budgets, [*reports, report]),
        "curves": [_curve(job, name, curve) for name, curve in curves.items()],
        "bound": _columns(job, bound_curve(job, budgets)),
        "memory": [{"strategy": each.strategy, **memory_curve(each)} for each in reports],
        "left_out": _left_out(job, report.strategy, names, points),
    }


def _few_budgets(job: Job, points: int, budget_bytes: int | None) -> list[int]:
    """Budgets from the smallest plan to strategy `liveness`, with the budget of the page."""
    fewest, most = (min_live_bytes(job, name) for name in ("sublinear", "liveness"))
    between = (round(fewest * (most / fewest) ** (step / (points - 1))) for step in range(points))
    return sorted({*between, *([budget_bytes] if budget_bytes is not None and budget_bytes < most else [])})


def _placed(job: Job, reports: Sequence[PlanReport]) -> Curve:
    """The points of the plans under the budget, and of the smallest ones, which are searched for."""
    programs = [program for each in reports for program in (each.program, each.minimum_program)]
    return [(program.arena_bytes, overhead_of(job, program.seconds)) for program in programs]


def compared_page(
    reports: Sequence[PlanReport], trades: Mapping[str, Trade], bound: Sequence[tuple[int, float]]
) -> dict[str, object]:
    """The section `strategies` of a page of a comparison that was made: plans, and what memory costs each of them."""
    first, job = reports[0], reports[0].job
    rows = []
    for report in rank(reports):
        trade = trades.get(report.strategy)
        sizes = [report.peak_bytes, *(nbytes for nbytes, _ in (trade.curve if trade else ()))]
        rows.append({**_row_without_search(report, {}), "least_bytes": min(sizes)})
    return {
        **_frame(first, rows),
        "strategy": None,  # the page has no main plan
        "placed": not is_deep(job),
        "least_time": _least_time(
            {name: {**trade.within} for name, trade in trades.items()}, [nbytes for nbytes, _ in bound], reports
        ),
        "curves": [_curve(job, name, trade.curve) for name, trade in trades.items()],
        "bound": _columns(job, bound),
        "memory": [{"strategy": each.strategy, **memory_curve(each)} for each in reports],
        "left_out": [],
    }


def _least_time(
    within: dict[str, dict[int, float]], budgets: Sequence[int], reports: Sequence[PlanReport]
) -> list[dict[str, object]]:
    """Rows of budgets, from the largest, with the seconds of each strategy that was planned for one and fits it."""
    first = reports[0]
    for report in reports:
        if report.budget_bytes is not None and report.feasible:
            within.setdefault(report.strategy, {})[report.budget_bytes] = report.overhead
    rows = []
    for nbytes in sorted({*budgets, *filter(None, [first.budget_bytes])}, reverse=True):
        fits = {name: overheads[nbytes] for name, overheads in within.items() if nbytes in overheads}
        if fits:
            seconds = {name: (1 + overhead) * first.job.baseline_seconds for name, overhead in fits.items()}
            rows.append({"bytes": nbytes, "seconds": seconds})
    return rows


def _curve(job: Job, strategy: str, curve: Curve) -> dict[str, object]:
    """`colour` is the place of the strategy among all of them: each has the same colour on every page."""
    places = [*STRATEGIES]
    colour = places.index(strategy) if strategy in STRATEGIES else len(places)
    return {"strategy": strategy, "colour": colour, **_columns(job, curve)}


def _frame(report: PlanReport, rows: Sequence[Mapping[str, object]]) -> dict[str, object]:
    job = report.job
    return {
        "strategy": report.strategy,
        "budget_bytes": report.budget_bytes,
        "baseline_bytes": job.baseline_bytes,
        "baseline_seconds": job.baseline_seconds,
        "bvlc_bytes": job.bvlc_bytes,
        "bound_bytes": report.bound_bytes,
        "rows": rows,
    }


def _row(report: PlanReport) -> dict[str, object]:
    return {**_row_without_search(report, {}), "least_bytes": report.minimum_bytes}


def _live_rows(job: Job, curves: dict[str, Curve], report: PlanReport) -> list[dict[str, object]]:
    """The fastest point within the budget of each curve, or the smallest point, and the placed plan of the page."""
    rows = []
    for name, curve in curves.items():
        fitting = [point for point in curve if report.budget_bytes is None or point[0] <= report.budget_bytes]
        nbytes, overhead = fitting[-1] if fitting else curve[0]
        rows.append(
            {
                "strategy": name,
                "description": get_strategy(name).description,
                "fits": bool(fitting),
                "peak_bytes": nbytes,
                "least_bytes": curve[0][0],
                "seconds": (1 + overhead) * job.baseline_seconds,
            }
        )
    rows = [row for row in rows if row["strategy"] != report.strategy]
    own = _row_without_search(report, curves)
    return sorted([own, *rows], key=lambda row: (not row["fits"], row["seconds"] if row["fits"] else row["peak_bytes"]))


def _row_without_search(report: PlanReport, curves: dict[str, Curve]) -> dict[str, object]:
    least = curves[report.strategy][0][0] if report.strategy in curves else None
    return {
        "strategy": report.strategy,
        "description": get_strategy(report.strategy).description if report.strategy in STRATEGIES else "",
        "fits": report.feasible,
        "peak_bytes": report.peak_bytes,
        "least_bytes": least,
        "host_bytes": report.program.host_bytes,
        "seconds": report.seconds,
        "recomputed_ops": report.recomputed_ops,
        "offloaded_bytes": report.offloaded_bytes,
    }


def _columns(job: Job, curve: Sequence[tuple[int, float]]) -> dict[str, object]:
    return {
        "bytes": [nbytes for nbytes, _ in curve],
        "seconds": [(1 + overhead) * job.baseline_seconds for _, overhead in curve],
    }


def memory_curve(report: PlanReport) -> dict[str, object]:
    """Live bytes over the step: at most STEPS intervals of equal length, each with the largest live bytes in it."""
    seconds, counts = live_bytes(spans(report.program.train, report.timeline))
    if len(seconds) > STEPS:
        seconds, counts = _thinned(seconds, counts, report.seconds)
    return {"seconds": [float(f"{second:.6g}") for second in seconds], "bytes": counts}


def _thinned(seconds: Sequence[float], counts: Sequence[int], total: float) -> tuple[list[float], list[int]]:
    most = [0] * STEPS
    last = 0
    for i, (moment, nbytes) in enumerate(zip(seconds, counts)):
        step = min(int(moment / total * STEPS), STEPS - 1) if total else 0
        for between in range(last + 1, step + 1):  # the live bytes at the end of the last step continue
            most[between] = max(most[between], counts[i - 1])
        most[step] = max(most[step], nbytes)
        last = step
    return [step * total / STEPS for step in range(STEPS)], most


def _left_out(job: Job, own: str, names: Sequence[str], points: int) -> list[str]:
    """Sentences about results that were left out, with the option that computes each."""
    notes = []
    others = [name for name in STRATEGIES if name not in (*names, own)]
    if own not in names:
        notes.append(f"Strategy {own} was planned for the budget of this page alone (--strategies NAMES, or all).")
    if others:
        notes.append(f"Strategies not compared: {', '.join(others)} (--strategies NAMES, or all).")
    if is_deep(job):
        notes.append(
            f"A step of {len(job.graphs[0].ops):,} ops: the plans compared were not placed, so their bytes are live "
            f"bytes; {points} budgets per curve (--points N)."
        )
    return notes
