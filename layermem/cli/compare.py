"""compare: every strategy side by side."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from layermem.cli.options import (
    Verbs,
    add_budget,
    add_json,
    add_net_or_solver,
    add_verb,
    device_of,
    job_of,
    print_json,
    strategies_text,
)
from layermem.cli.watch import watched
from layermem.errors import InputError

if TYPE_CHECKING:
    from layermem.report.plan_report import Job, PlanReport
    from layermem.solver.benchmark import Measured

COMPARE_EXAMPLE = """\
  layermem compare --net prototxt/vgg16/train_val.prototxt --budget 4GiB
  layermem compare --net prototxt/digits/train_val.prototxt --budget 50% --strategies liveness,hybrid,auto --run 20
  layermem compare --net prototxt/resnet50/train_val.prototxt --budget 1GiB --plot memory.html
"""
HEADINGS = ["strategy", "fits", ">peak", ">of caffe", ">of BVLC", ">host", ">time", ">overhead"]
MEASURED = [">measured peak", ">measured time"]
ROOM = 0.9  # share of the machine's memory that a run may take


def add_verbs(verbs: Verbs) -> None:
    parser = add_verb(
        verbs, "compare", "rank strategies by peak memory and time, side by side", COMPARE_EXAMPLE, more=strategies_text
    )
    add_net_or_solver(parser)
    add_budget(parser)
    parser.add_argument("--strategies", metavar="A,B", help="which ones, or `all` (all but recompute-exact)")
    parser.add_argument("--run", metavar="N", type=int, default=0, dest="steps", help="run N steps of each and measure")
    parser.add_argument("--threads", metavar="N", type=int, help="threads of the cpu device (all cores)")
    parser.add_argument("--plot", metavar="OUT", help="draw memory over the step and time against memory: html or png")
    add_json(parser)
    parser.set_defaults(run=run_compare)


def run_compare(arguments: argparse.Namespace) -> int:
    from layermem.report.comparison import rank, select_strategies
    from layermem.report.plan_report import evaluate

    if arguments.steps < 0:
        raise InputError(f"--run {arguments.steps} measures nothing; give 1 or more steps")
    if arguments.plot:
        from layermem.report.timeline import check_plot

        check_plot(arguments.plot)
    job, names = job_of(arguments), select_strategies(arguments.strategies)
    founds = rank(evaluate(job, name, arguments.budget) for name in watched(names, "planning"))
    measured = _measured(arguments, founds) if arguments.steps > 0 else {}
    if arguments.json:
        print_json(_values(job, founds, measured))
    else:
        _print(job, founds, measured)
    if arguments.plot:
        _plot(job, founds, arguments.plot)
    return 0


def _measured(arguments: argparse.Namespace, founds: list[PlanReport]) -> dict[str, Measured]:
    """Peak and time of the strategies that fit, where this machine has the memory."""
    from layermem.solver.benchmark import Benchmark

    device = device_of(arguments)
    within = [found for found in founds if found.feasible and found.peak_bytes + found.program.host_bytes < _memory()]
    return {
        found.strategy: Benchmark(found.job.nets[0], found.program, device).steps(arguments.steps)
        for found in watched(within, "running")
    }


def _memory() -> float:
    """Bytes that a run may take on this machine."""
    return ROOM * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


# -- how it is shown -------------------------------------------------------------------------------------------


def _print(job: Job, founds: list[PlanReport], measured: dict[str, Measured]) -> None:
    from layermem.report.tables import print_table
    from layermem.utils.units import format_bytes, format_seconds

    rows = [_row(found, measured) for found in founds]
    first = founds[0]
    budget = f", budget {format_bytes(first.budget)}" if first.budget is not None else ""
    print_table([*HEADINGS, *(MEASURED if measured else [])], rows, title=f"{job.title} on {first.device}{budget}")
    taken = f"{format_bytes(job.baseline_bytes)} and {format_seconds(job.baseline_seconds)}"
    print(f"baseline: strategy caffe takes {taken}; BVLC Caffe itself would take {format_bytes(job.bvlc_bytes)}")
    inside = f"; none inside this budget is faster than {format_seconds(first.bound_seconds)}" if budget else ""
    print(f"bounds: no plan takes less than {format_bytes(first.bound_bytes)}{inside}")
    if not founds[-1].feasible:
        print("a strategy that does not fit is shown with the least that it takes")


def _row(found: PlanReport, measured: dict[str, Measured]) -> list[str]:
    from layermem.report.summary import percent
    from layermem.utils.units import format_bytes, format_change, format_seconds

    host = found.program.host_bytes
    row = [
        found.strategy,
        "yes" if found.feasible else "no",
        format_bytes(found.peak_bytes),
        percent(found.peak_bytes, found.job.baseline_bytes),
        percent(found.peak_bytes, found.job.bvlc_bytes),
        format_bytes(host) if host else "",
        format_seconds(found.seconds),
        format_change(found.overhead),
    ]
    if measured:
        run = measured.get(found.strategy)
        row += [format_bytes(run.peak_bytes), format_seconds(run.seconds)] if run else ["", ""]
    return row


def _values(job: Job, founds: list[PlanReport], measured: dict[str, Measured]) -> dict[str, Any]:
    first = founds[0]
    return {
        "net": job.title,
        "device": first.device,
        "budget_bytes": first.budget,
        "caffe_bytes": job.baseline_bytes,
        "bvlc_bytes": job.bvlc_bytes,
        "baseline_seconds": job.baseline_seconds,
        "lower_bound_bytes": first.bound_bytes,
        "lower_bound_seconds": first.bound_seconds,
        "strategies": [
            {
                "strategy": found.strategy,
                "feasible": found.feasible,
                "peak_bytes": found.peak_bytes,
                "share_of_caffe": found.peak_bytes / job.baseline_bytes,
                "share_of_bvlc": found.peak_bytes / job.bvlc_bytes,
                "max_live_bytes": found.program.max_live_bytes,
                "host_bytes": found.program.host_bytes,
                "predicted_seconds": found.seconds,
                "overhead": found.overhead,
                "recomputed_ops": found.recomputed_ops,
                "copied_bytes": found.offloaded_bytes,
                "measured_peak_bytes": measured[found.strategy].peak_bytes if found.strategy in measured else None,
                "measured_seconds": measured[found.strategy].seconds if found.strategy in measured else None,
            }
            for found in founds
        ],
    }


def _plot(job: Job, founds: list[PlanReport], path: str) -> None:
    from layermem.report.comparison import bound_curve, budget_grid, pareto_front, trade_curve
    from layermem.report.timeline import draw_memory

    shown = [found for found in founds if found.feasible] or founds
    budgets = budget_grid(job)
    trades: dict[str, list[tuple[int, float]]] = {}
    for name in watched(sorted((found.strategy for found in shown), key="auto".__eq__), "drawing"):
        # `auto` goes last, and answers the budgets of the others' best points, so that the lines may be compared.
        others = pareto_front([point for points in trades.values() for point in points]) if name == "auto" else []
        trades[name] = trade_curve(job, name, sorted({*budgets, *(nbytes for nbytes, _ in others)}))
    draw_memory(shown, trades, bound_curve(job, budgets), path, title=f"{job.title} on {shown[0].device}")
