"""plan: what a training step takes, and why."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from layermem.cli.options import (
    Verbs,
    add_budget,
    add_json,
    add_net_or_solver,
    add_verb,
    job_of,
    print_json,
    strategies_text,
)
from layermem.cli.plan_graph import add_graph_options, refuse_graph_options, run_graph
from layermem.utils.files import write_atomically

if TYPE_CHECKING:
    from layermem.report.plan_report import PlanReport

EXAMPLE = """\
  layermem plan --net prototxt/resnet50/train_val.prototxt --budget 2GiB
  layermem plan --solver prototxt/digits/solver.prototxt --budget 50% --strategy hybrid --schedule
  layermem plan --net prototxt/vgg16/train_val.prototxt --strategy liveness --plot arena.html --trace step.json
  layermem plan --graph cg_unet.txt -b 25% -t T --family exact
"""


def add_verbs(verbs: Verbs) -> None:
    parser = add_verb(
        verbs, "plan", "print what a training step takes under a strategy and a budget, and why", EXAMPLE,
        more=strategies_text,
    )  # fmt: skip
    which = add_net_or_solver(parser)
    which.add_argument("--graph", metavar="F.txt", help="a graph file of Kusumoto et al.: prints a schedule for it")
    add_budget(parser)
    parser.add_argument("--strategy", metavar="S", help="one of those below (auto under a budget, else liveness)")
    out = parser.add_argument_group("output")
    add_json(out)
    out.add_argument("--schedule", action="store_true", help="print every row of the step, with offsets")
    out.add_argument("--save", metavar="P.json", help="save the plan")
    out.add_argument("--load", metavar="P.json", help="take a saved plan instead of a strategy")
    out.add_argument("--plot", metavar="OUT", help="draw the arena over the step: OUT.html or OUT.png")
    out.add_argument("--trace", metavar="OUT.json", help="the three streams for a trace viewer (ui.perfetto.dev)")
    out.add_argument("--export-graph", metavar="G.txt", help="write the step as a graph file, for --graph")
    add_graph_options(parser)
    parser.set_defaults(run=run_plan)


def run_plan(arguments: argparse.Namespace) -> int:
    from layermem.api import read_plan
    from layermem.report.plan_report import evaluate
    from layermem.report.summary import plan_values, summary

    if arguments.graph:
        return run_graph(arguments)
    refuse_graph_options(arguments)
    if arguments.plot:
        from layermem.report.timeline import check_plot

        check_plot(arguments.plot)
    job = job_of(arguments)
    saved = read_plan(arguments.load, job) if arguments.load else None
    found = evaluate(job, arguments.strategy, arguments.budget, saved)
    if arguments.json:
        print_json(plan_values(found))
    elif found.feasible:
        print(summary(found), end="")
    if found.refusal is not None:
        raise found.explain_refusal()
    _outputs(arguments, found)
    return 0


def _outputs(arguments: argparse.Namespace, found: PlanReport) -> None:
    if arguments.export_graph:
        from layermem.planning.graph_files.export import graph_file
        from layermem.planning.graph_files.text_format import write_graph

        write_graph(graph_file(found.job.graphs[0]), arguments.export_graph)
    if arguments.save:
        write_atomically(arguments.save, found.program.train.plan.to_json(found.job.graphs[0]).encode())
    if arguments.trace:
        from layermem.report.trace import trace_text

        write_atomically(arguments.trace, trace_text(found).encode())
    if arguments.plot:
        from layermem.report.timeline import draw_arena

        draw_arena(found, arguments.plot)
    if arguments.schedule:
        from layermem.schedule.text import text

        for schedule in found.program.schedules:
            print(text(schedule), end="")
