"""report: writes a page about a net, its plan and all strategies."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from layermem.cli.options import (
    add_budget,
    add_net_or_solver,
    add_points,
    add_strategies,
    add_strategy,
    job_of,
    strategies_text,
)
from layermem.cli.parser import Verbs, add_verb
from layermem.utils.files import write_atomically
from layermem.utils.progress import show_progress
from layermem.utils.text import wrap

if TYPE_CHECKING:
    from layermem.report.plan_report import PlanReport

REPORT_EXAMPLE = """\
  layermem examples digits
  layermem report --solver digits/solver.prototxt --budget 50% -o report.html
  layermem report --net digits/train_val.prototxt --strategies liveness,auto -o x.html
"""


def add_verbs(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "report",
        "write a page about a net: graph, arena over time, streams, strategies, costs by layer",
        REPORT_EXAMPLE,
        more=strategies_text,
    )
    add_net_or_solver(parser)
    add_budget(parser)
    add_strategy(parser)
    out = parser.add_argument_group("output")
    out.add_argument("-o", "--output", metavar="OUT.html", required=True, help="the page: one file that loads nothing")
    add_strategies(out)
    add_points(out)
    out.add_argument("--log", metavar="RUN", help="a log of `layermem train --log`, for the curves of its training")
    parser.set_defaults(run=run_report)


def run_report(arguments: argparse.Namespace) -> int:
    from layermem.integrations.page.data import plan_page
    from layermem.integrations.page.html import check_page, page_html
    from layermem.integrations.page.strategies import check_points
    from layermem.integrations.page.training import training_page
    from layermem.report.comparison import select_strategies
    from layermem.report.plan_report import evaluate
    from layermem.report.read_log import read_records
    from layermem.utils.units import format_bytes, format_seconds

    check_page(arguments.output)
    check_points(arguments.points)
    select_strategies(arguments.strategies)
    training = training_page(arguments.log, read_records(arguments.log)) if arguments.log else None
    job = job_of(arguments)
    report = evaluate(job, arguments.strategy, arguments.budget)
    report.feasible_program()
    page = page_html(plan_page(report, strategies=_strategies(arguments, report), training=training))
    write_atomically(arguments.output, page)
    print(
        wrap(
            f"wrote {arguments.output} ({format_bytes(len(page))}): {job.title} under {report.strategy}, peak "
            f"{format_bytes(report.peak_bytes)}, {format_seconds(report.seconds)} per step (predicted)"
        )
    )
    return 0


def _strategies(arguments: argparse.Namespace, report: PlanReport) -> dict[str, object]:
    from layermem.integrations.page.strategies import choose_points, choose_strategies, strategies_page

    names = choose_strategies(report.job, arguments.strategies)
    with show_progress(len(names), "strategies") as progress:
        return strategies_page(report, names, choose_points(report.job, arguments.points), progress)
