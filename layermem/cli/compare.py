"""compare: peak memory and time of every strategy."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from layermem.cli.measuring import add_measure, measured_job
from layermem.cli.options import (
    add_budget,
    add_gpu,
    add_json,
    add_net_or_solver,
    add_ranks,
    add_strategies,
    add_threads,
    budget_of,
    device_of,
    job_of,
    print_json,
    strategies_text,
)
from layermem.cli.parser import Verbs, add_verb
from layermem.errors import InputError
from layermem.utils.files import check_output
from layermem.utils.progress import show_progress, track_progress

if TYPE_CHECKING:
    from layermem.planning.job import Job
    from layermem.report.plan_report import PlanReport
    from layermem.solver.benchmark import Measured

COMPARE_EXAMPLE = """\
  layermem examples vgg16 digits mnist
  layermem compare --net vgg16/train_val.prototxt --budget 4GiB
  layermem compare --net digits/train_val.prototxt --strategies liveness,auto --run 20
  layermem compare --net mnist/train_val.prototxt --budget 50% --plot memory.html
"""
HEADINGS = ["strategy", "fits", ">peak", ">of caffe", ">of BVLC", ">host", ">time", ">overhead"]
MEASURED = [">measured peak", ">measured time"]
OPTIONAL = (">of BVLC", ">of caffe", ">overhead")  # columns that a narrow terminal leaves out


def add_verbs(verbs: Verbs) -> None:
    parser = add_verb(
        verbs, "compare", "compare strategies by peak memory and time", COMPARE_EXAMPLE, more=strategies_text
    )
    add_net_or_solver(parser)
    add_gpu(parser)
    add_measure(parser)
    add_budget(parser)
    add_strategies(parser)
    add_ranks(parser)
    parser.add_argument("--run", metavar="N", type=int, default=0, dest="steps", help="run and measure N steps of each")
    add_threads(parser)
    parser.add_argument("--plot", metavar="OUT", help="plot memory and time: OUT.png, .svg, .pdf or .html")
    add_json(parser)
    parser.set_defaults(run=run_compare)


def run_compare(arguments: argparse.Namespace) -> int:
    from layermem.report.comparison import evaluate_all, rank, select_strategies

    if arguments.steps < 0:
        raise InputError(f"--run {arguments.steps} is too few; give 1 or more steps")
    if arguments.plot:
        from layermem.integrations.page.timeline import check_plot

        check_plot(arguments.plot)
    check_output(arguments.plot, arguments.save_costs)
    names, budget = select_strategies(arguments.strategies), budget_of(arguments)
    job = measured_job(arguments, job_of(arguments))
    with show_progress(len(names), "planning") as show:
        reports = rank(evaluate_all(job, names, budget, show))
    measured = _measure(arguments, reports) if arguments.steps > 0 else {}
    if arguments.json:
        print_json(_values(job, reports, measured))
    else:
        _print(job, reports, measured)
    if arguments.plot:
        _plot(job, reports, arguments.plot)
    return 0


def _measure(arguments: argparse.Namespace, reports: list[PlanReport]) -> dict[str, Measured]:
    """Measured peak and time of the strategies that fit the budget and the memory of this machine."""
    from layermem.solver.benchmark import Benchmark
    from layermem.solver.measure import machine_bytes

    device, most = device_of(arguments), machine_bytes()
    spill = None if arguments.spill is None else Path(arguments.spill)
    runnable = [
        report
        for report in reports
        if report.feasible and report.peak_bytes + (0 if spill else report.program.host_bytes) < most
    ]
    return {
        report.strategy: Benchmark(report.job.nets[0], report.program, device, spill=spill).steps(arguments.steps)
        for report in track_progress(runnable, "running")
    }


# -- output -------------------------------------------------------------------------------------------------------


def _print(job: Job, reports: list[PlanReport], measured: dict[str, Measured]) -> None:
    from layermem.report.refusal import host_budget_facts
    from layermem.report.summary import costs_facts, ranks_facts, slices_values, spill_facts
    from layermem.report.tables import print_table
    from layermem.utils.text import wrap
    from layermem.utils.units import format_bytes, format_seconds

    rows = [_row(report, measured) for report in reports]
    first = reports[0]
    budget = f", budget {format_bytes(first.budget_bytes)}" if first.budget_bytes is not None else ""
    slices = [slices_values(report) for report in reports]
    columns = [name for name in slices[0] if any(values[name] for values in slices)]
    print_table(
        [*HEADINGS, *(MEASURED if measured else []), *(name.replace("_", " ") for name in columns)],
        [[*row, *(values[name] or "" for name in columns)] for row, values in zip(rows, slices)],
        title=f"{job.title} on {first.target}{budget}",
        optional=OPTIONAL,
    )
    facts = [
        ("baseline", f"{format_bytes(job.baseline_bytes)}, {format_seconds(job.baseline_seconds)} (strategy caffe)"),
        ("BVLC Caffe", f"{format_bytes(job.bvlc_bytes)} (computed)"),
        (
            "lower bounds",
            f"{format_bytes(first.bound_bytes)}"
            + (f"; {format_seconds(first.bound_seconds)} within this budget" if budget else ""),
        ),
    ]
    facts += [*costs_facts(job), *ranks_facts(job)]
    facts += [("host memory", text) for _, text in host_budget_facts(job.hints)]
    facts += spill_facts(job)
    if not reports[-1].feasible:
        facts.append(("note", "over-budget strategies are listed at their minimum memory"))
    facts += [("warning", warning) for warning in job.warnings]
    for label, text in facts:
        print(wrap(f"{label:<14}{text}"))


def _row(report: PlanReport, measured: dict[str, Measured]) -> list[str]:
    from layermem.utils.units import format_bytes, format_change, format_seconds, format_share

    host = report.program.host_bytes
    row = [
        report.strategy,
        "yes" if report.feasible else "no",
        format_bytes(report.peak_bytes),
        format_share(report.peak_bytes, report.job.baseline_bytes),
        format_share(report.peak_bytes, report.job.bvlc_bytes),
        format_bytes(host) if host else "",
        format_seconds(report.seconds),
        format_change(report.overhead),
    ]
    if measured:
        run = measured.get(report.strategy)
        row += [format_bytes(run.peak_bytes), format_seconds(run.seconds)] if run else ["", ""]
    return row


def _values(job: Job, reports: list[PlanReport], measured: dict[str, Measured]) -> dict[str, object]:
    first = reports[0]
    return {
        "net": job.title,
        "device": first.device,
        "storage": first.storage,
        "gpu": job.costs.gpu.name if job.costs.gpu is not None else None,
        "costs": "measured" if job.costs.measured else "modelled",
        "spill": job.costs.spill.values if job.costs.spill is not None else None,
        "ranks": job.ranks.size,
        "rank": job.ranks.rank,
        "micro_batches": job.ranks.micro_batches,
        "budget_bytes": first.budget_bytes,
        "caffe_bytes": job.baseline_bytes,
        "bvlc_bytes": job.bvlc_bytes,
        "baseline_seconds": job.baseline_seconds,
        "lower_bound_bytes": first.bound_bytes,
        "lower_bound_seconds": first.bound_seconds,
        "warnings": job.warnings,
        "strategies": [_entry(job, report, measured.get(report.strategy)) for report in reports],
    }


def _entry(job: Job, report: PlanReport, measured: Measured | None) -> dict[str, object]:
    from layermem.report.summary import slices_values

    return {
        "strategy": report.strategy,
        **slices_values(report),
        "not_fused": list(report.not_fused),
        "feasible": report.feasible,
        "peak_bytes": report.peak_bytes,
        "share_of_caffe": report.peak_bytes / job.baseline_bytes,
        "share_of_bvlc": report.peak_bytes / job.bvlc_bytes,
        "max_live_bytes": report.program.max_live_bytes,
        "host_bytes": report.program.host_bytes,
        "predicted_seconds": report.seconds,
        "overhead": report.overhead,
        "recomputed_ops": report.recomputed_ops,
        "offloaded_bytes": report.offloaded_bytes,
        "measured_peak_bytes": None if measured is None else measured.peak_bytes,
        "measured_seconds": None if measured is None else measured.seconds,
    }


def _plot(job: Job, reports: list[PlanReport], path: str) -> None:
    from layermem.integrations.page.timeline import draw_memory
    from layermem.planning.strategies import get_strategy
    from layermem.report.comparison import Trade, bound_curve, budget_grid, pareto_front, trade_curve

    shown = [report for report in reports if report.feasible] or reports
    budgets = budget_grid(job)
    trades: dict[str, Trade] = {}
    last = sorted((get_strategy(report.strategy) for report in shown), key=lambda entry: entry.combines_others)
    for name, combines in track_progress([(entry.name, entry.combines_others) for entry in last], "drawing"):
        # Strategies that combine others come last, with the budgets of their best points: the curves are then
        # comparable.
        others = pareto_front([point for trade in trades.values() for point in trade.curve]) if combines else []
        between = [nbytes for nbytes, _ in others if nbytes not in budgets]
        trades[name] = trade_curve(job, name, budgets, between)
    draw_memory(shown, trades, bound_curve(job, budgets), path, title=f"{job.title} on {shown[0].target}")
