"""curves: the losses and accuracies in a log of `train --log`, as a table or a plot."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from layermem.cli.options import add_json, print_json
from layermem.cli.parser import Verbs, add_verb
from layermem.errors import InputError

if TYPE_CHECKING:
    from layermem.report.read_log import Curve

EXAMPLE = """\
  layermem examples digits
  layermem train --solver digits/solver.prototxt --iterations 100 --log run.jsonl
  layermem curves run.jsonl
  layermem curves run.jsonl --plot curves.html
"""
HEADINGS = ["net", "curve", ">points", ">last", ">at", ">least", ">at", ">largest", ">at"]


def add_verbs(verbs: Verbs) -> None:
    parser = add_verb(verbs, "curves", "print or plot the losses and accuracies in a log of `layermem train`", EXAMPLE)
    parser.add_argument("log", metavar="RUN", help="RUN.jsonl or RUN.csv, which `layermem train --log` writes")
    parser.add_argument("--plot", metavar="OUT", help="plot them instead, to OUT.png, .svg, .pdf or .html")
    add_json(parser)
    parser.set_defaults(run=run_curves)


def run_curves(arguments: argparse.Namespace) -> int:
    """Show the curves of the last run of the log, and of the runs that it resumes."""
    from layermem.integrations.page.curves import draw_curves
    from layermem.integrations.page.timeline import check_plot
    from layermem.report.read_log import curves, last_training, read_records
    from layermem.report.tables import print_table

    if arguments.plot:
        check_plot(arguments.plot)
    records = last_training(read_records(arguments.log))
    shown = curves(records)
    if not shown:
        raise InputError("has no iteration and no test yet; give a log of a longer run", path=arguments.log)
    if arguments.plot:
        draw_curves(records, arguments.plot)
    if arguments.json:
        print_json({"curves": [_values(curve) for curve in shown]})
    elif not arguments.plot:
        different = {(curve.net, curve.values): curve for curve in reversed(shown)}  # a single output is the loss
        rows = [_row(curve) for curve in reversed(different.values())]
        print_table(HEADINGS, rows, title=f"{records[0].get('net')}", optional=(">points",))
    return 0


def _row(curve: Curve) -> list[str]:
    finite = [(value, at) for value, at in zip(curve.values, curve.iterations) if value is not None]
    net = curve.net.replace(" ", "")
    if not finite:
        return [net, curve.name.replace("_", " "), str(len(curve.values)), *[""] * 6]
    last, least, largest = finite[-1], min(finite), max(finite, key=lambda point: (point[0], -point[1]))
    cells = [text for value, at in (last, least, largest) for text in (f"{value:.4g}", f"{at:,}")]
    return [net, curve.name.replace("_", " "), f"{len(curve.values):,}", *cells]


def _values(curve: Curve) -> dict[str, object]:
    return {name: getattr(curve, name) for name in ("net", "kind", "name", "iterations", "values")}
