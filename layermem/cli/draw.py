"""draw: a net as SVG, coloured by the decisions of its plan."""

from __future__ import annotations

import argparse

from layermem.cli.options import add_budget, add_net_or_solver, add_strategy, job_of, print_warnings, strategies_text
from layermem.cli.parser import Verbs, add_verb
from layermem.errors import InputError
from layermem.utils.files import check_output

EXAMPLE = """\
  layermem examples digits resnet20
  layermem draw --net digits/train_val.prototxt --batch 64 --budget 50% -o digits.svg
  layermem draw --net resnet20/train_val.prototxt --fold --rankdir LR -o resnet20.svg
"""
DIRECTIONS = ("TB", "LR")


def add_verbs(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "draw",
        "draw a net as SVG: layers, shapes and bytes, coloured by the decisions of its plan",
        EXAMPLE,
        more=strategies_text,
    )
    parser.add_argument("-o", "--output", metavar="OUT.svg", required=True, help="the file to write")
    parser.add_argument(
        "--rankdir",
        choices=DIRECTIONS,
        type=str.upper,
        default="TB",
        help="from top to bottom, or from left to right (default: TB)",
    )
    parser.add_argument("--fold", action="store_true", help="draw each repeated stage once, with its count")
    add_net_or_solver(parser)
    add_budget(parser)
    add_strategy(parser)
    parser.add_argument("--load", metavar="P.json", help="the plan that `layermem plan --save` wrote")
    parser.set_defaults(run=run_draw)


def run_draw(arguments: argparse.Namespace) -> int:
    from layermem.report.drawing import check_drawing, draw_net
    from layermem.report.plan_report import evaluate

    check_output(arguments.output)
    check_drawing(arguments.output)
    job = job_of(arguments)
    print_warnings(job.graphs[0].warnings)
    report = evaluate(job, arguments.strategy, arguments.budget, arguments.load)
    if report.slices is not None:
        raise InputError(
            "draw has one box for an op, and a layer in slices has several; leave --slices and --split-weights out"
        )
    if report.refusal is not None:
        raise report.explain_refusal()
    draw_net(report, arguments.output, rankdir=arguments.rankdir, fold=arguments.fold)
    return 0
