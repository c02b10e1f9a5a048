"""plan: memory and time of a training step under a strategy and a budget."""

from __future__ import annotations

import argparse
import shutil
import sys
from typing import TYPE_CHECKING

from layermem.cli.measuring import add_measure, measured_job
from layermem.cli.options import (
    MEMORY,
    add_budget,
    add_data,
    add_gpu,
    add_json,
    add_net_or_solver,
    add_ranks,
    add_strategy,
    budget_of,
    device_of,
    free_line,
    job_of,
    print_json,
    solver_file,
    strategies_text,
    titled,
)
from layermem.cli.parser import Verbs, add_verb
from layermem.utils.files import check_name, check_output, write_atomically
from layermem.utils.input_files import read_lines
from layermem.utils.progress import show_progress
from layermem.utils.text import printable

if TYPE_CHECKING:
    from layermem.planning.job import Job
    from layermem.planning.plan import Plan
    from layermem.report.plan_report import PlanReport

EXAMPLE = """\
  layermem examples resnet50 digits vgg16
  layermem plan --net resnet50/train_val.prototxt --budget 2GiB
  layermem plan --solver digits/solver.prototxt --budget 50% --schedule
  layermem plan --net digits/train_val.prototxt --budget 50% --measure
  layermem plan --net digits/train_val.prototxt --budget 30% --spill .
  layermem plan --net digits/train_val.prototxt --device reference --slices conv1..pool1/4
  layermem plan --net resnet50/train_val.prototxt --ranks 4
  layermem plan --net resnet50/train_val.prototxt --device cuda --card "RTX 4090"
  layermem plan --net vgg16/train_val.prototxt --plot arena.html --trace step.json
  # a schedule that another program made for the graph file of the net (layermem docs formats):
  layermem plan --solver digits/solver.prototxt --export-graph digits.txt
  layermem plan-graph digits.txt --budget 60% -o schedule.txt
  layermem plan --solver digits/solver.prototxt --import-schedule schedule.txt --save plan.json
  layermem train --solver digits/solver.prototxt --load plan.json
"""


def add_verbs(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "plan",
        "plan a training step: peak memory, time, and what uses the memory at the peak",
        EXAMPLE,
        more=strategies_text,
    )
    add_net_or_solver(parser)
    add_data(parser)
    add_gpu(parser)
    add_measure(parser)
    add_budget(parser)
    add_strategy(parser)
    add_ranks(parser)
    out = parser.add_argument_group("output")
    add_json(out)
    out.add_argument("--minimum", action="store_true", help="the smallest budget that the strategy fits: a search")
    out.add_argument("--schedule", action="store_true", help="every instruction of the step, with offsets")
    out.add_argument("--save", metavar="P.json", help="write the plan to a file, for --load")
    given = titled(parser, MEMORY)
    given.add_argument("--load", metavar="P.json", help="use a saved plan instead of a strategy")
    given.add_argument(
        "--import-schedule",
        metavar="S.txt",
        help="use a schedule of another program, for the graph file that --export-graph writes, instead of a strategy",
    )
    out.add_argument("--plot", metavar="OUT", help="plot the arena over time: OUT.png, .svg, .pdf or .html")
    out.add_argument("--trace", metavar="OUT.json", help="write a trace of the streams, for ui.perfetto.dev")
    out.add_argument(
        "--export-graph",
        metavar="G.txt",
        help="write the step as a graph file with the seconds of each function, for `layermem plan-graph`",
    )
    parser.set_defaults(run=run_plan)


def _check_outputs(arguments: argparse.Namespace) -> None:
    """InputError, before any work, for a file that could not be written."""
    check_output(arguments.save, arguments.plot, arguments.trace, arguments.export_graph, arguments.save_costs)
    check_name(arguments.save, (".json",), "a plan")
    check_name(arguments.trace, (".json",), "a trace")
    check_name(arguments.export_graph, (), "a graph file")
    if arguments.plot:
        from layermem.integrations.page.timeline import check_plot

        check_plot(arguments.plot)


def run_plan(arguments: argparse.Namespace) -> int:
    from layermem.backends.arena import check_spill_space
    from layermem.report.plan_report import evaluate
    from layermem.report.summary import plan_values, process_line, summary
    from layermem.solver.process_memory import expected_memory, uses_files, uses_hdf5

    _check_outputs(arguments)
    job = measured_job(arguments, job_of(arguments))
    with show_progress(None, f"planning {job.title}"):
        plan = _imported_plan(job, arguments.import_schedule) if arguments.import_schedule else arguments.load
        report = evaluate(job, arguments.strategy, budget_of(arguments), plan, begin_bound=True)
    param = solver_file(arguments).message if arguments.solver else None
    spills = job.costs.spill is not None
    process = expected_memory(
        job.nets,
        report.program,
        device_of(arguments),
        spill=spills,
        files=param is not None and uses_files(param),
        hdf5=param is not None and uses_hdf5(param),
        ranks=job.ranks.size,
        candidate_ops=report.job.candidate_ops,
    )
    if arguments.json:
        from layermem.schedule.text import schedule_values

        schedules = report.program.schedules if arguments.schedule and report.feasible else ()
        more: dict[str, object] = {"schedules": [*map(schedule_values, schedules)]} if schedules else {}
        more["expected_process_bytes"] = process.total_bytes
        print_json(plan_values(report, minimum=arguments.minimum) | more)
    elif report.feasible:
        print(free_line(arguments, report.budget_bytes) + summary(report, minimum=arguments.minimum), end="")
        print(process_line(process.total_bytes, str(process)))
    if report.refusal is not None:
        raise report.explain_refusal()
    if arguments.spill is not None:
        check_spill_space(report.program.host_bytes, arguments.spill)
    _outputs(arguments, report)
    return 0


def _imported_plan(job: Job, path: str) -> Plan:
    """The plan of a schedule of another program, which is in the file at `path`."""
    from layermem.integrations.graph_files.import_schedule import plan_of_schedule

    return plan_of_schedule(job.graphs[0], "\n".join(read_lines(path, what="schedule")), path)


def _outputs(arguments: argparse.Namespace, report: PlanReport) -> None:
    if arguments.export_graph:
        from layermem.integrations.graph_files.export import graph_file
        from layermem.integrations.graph_files.text_format import write_graph

        write_graph(graph_file(report.job.graphs[0], report.job.costs), arguments.export_graph)
    if arguments.save:
        spill = report.job.costs.spill
        saved = report.program.train.plan.to_json(report.job.graphs[0], None if spill is None else spill.values)
        write_atomically(arguments.save, saved.encode())
    if arguments.trace:
        from layermem.report.trace import trace_text

        write_atomically(arguments.trace, trace_text(report).encode())
    if arguments.plot:
        from layermem.integrations.page.timeline import draw_arena

        draw_arena(report, arguments.plot)
    if arguments.schedule and not arguments.json:
        from layermem.schedule.text import instruction_text

        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        for schedule in report.program.schedules:
            print(printable(instruction_text(schedule, width)), end="")
