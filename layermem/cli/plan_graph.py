"""plan-graph: plans recomputation for a computational graph in a file: a summary, and a schedule text.

Graph files in the text form have a forward and a backward half and are planned by lower sets or nested recomputation.
Node-link JSON has one order of nodes with their costs and is planned by splitting residencies.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from layermem.cli.options import add_json, print_json
from layermem.cli.parser import Verbs, add_verb
from layermem.errors import BudgetError, InputError
from layermem.utils.files import check_name, check_output, write_atomically
from layermem.utils.input_files import read_lines
from layermem.utils.progress import show_progress
from layermem.utils.text import count_text, wrap
from layermem.utils.units import format_below, format_exact_bytes, format_seconds, parse_bytes

if TYPE_CHECKING:
    from layermem.integrations.graph_files.node_link import NodeLinkGraph
    from layermem.integrations.graph_files.planner import GraphPlan
    from layermem.integrations.graph_files.text_format import GraphFile

EXAMPLE = """\
  layermem examples unet
  layermem plan --net unet/train_val.prototxt --export-graph unet.txt
  layermem plan-graph unet.txt --budget 50% --family exact -o schedule.txt
  layermem plan-graph unet.txt --budget 17% --family nested
  layermem plan-graph unet.txt --budget 50% --op-costs authors
"""
OBJECTIVES = {"time": "T", "memory": "M"}


def add_verbs(verbs: Verbs) -> None:
    description = (
        "plan recomputation for a graph file (format of Kusumoto et al., or node-link JSON as Checkmate and Moccasin "
        "have it): peak, cost and, in a file, its schedule"
    )
    parser = add_verb(verbs, "plan-graph", description, EXAMPLE)
    parser.add_argument("graph", metavar="FILE", help="a graph file, such as `layermem plan --export-graph` writes")
    parser.add_argument(
        "-b",
        "--budget",
        metavar="B",
        help="bytes, or %% of all values and gradients (default: the minimum); of a .json, %% of the peak of its order",
    )
    parser.add_argument(
        "--objective",
        choices=OBJECTIVES,
        default="time",
        help="time: least recomputation; memory: coarse segments, which liveness shrinks (default: time)",
    )
    parser.add_argument(
        "--family",
        choices=("extended", "exact", "approx", "nested", "sublinear"),
        default="extended",
        help="the lower sets at which a segment may end; nested: any value is computed any number of times, which "
        "recomputes less in little memory; sublinear: the segments of Chen et al. (default: extended)",
    )
    _add_model(parser)
    parser.add_argument(
        "--time-limit",
        metavar="S",
        type=float,
        default=60.0,
        help="length of each search, after which its best plan so far counts: seconds of a slow core, counted in "
        "steps, so that every machine gets the same plan (default: 60)",
    )
    _add_schedule(parser)
    add_json(parser)
    parser.set_defaults(run=run_plan_graph)


def _add_schedule(parser: argparse.ArgumentParser) -> None:
    """Options of schedules: one to check, and what becomes of that of the plan."""
    parser.add_argument(
        "--check",
        metavar="S.txt",
        help="check a schedule of another program for this graph instead: its peak, and what it recomputes",
    )
    parser.add_argument("-o", "--output", metavar="S.txt", help="write the schedule; -v prints it below the summary")
    parser.add_argument("--draw", metavar="OUT.dot", help="write the segments as a graph, for Graphviz")


def _add_model(parser: argparse.ArgumentParser) -> None:
    """Options of what the budget bounds and what an op costs."""
    parser.add_argument(
        "--model",
        choices=("live", "paper"),
        default="live",
        help="what the budget bounds: exact liveness, or the paper's formula (default: live)",
    )
    parser.add_argument(
        "--reads",
        choices=("file", "inputs"),
        help="data that a backward reads: what the file lists, or all inputs of its function and no output, as the "
        "paper's formula assumes (default: file; inputs under model paper)",
    )
    parser.add_argument(
        "--op-costs",
        choices=("file", "authors"),
        default="file",
        help="file: seconds of each function, where the file gives them, as --export-graph writes; authors: 10 for a "
        "convolution, 1 for any other (default: file)",
    )


def run_plan_graph(arguments: argparse.Namespace) -> int:
    """Print a summary of the plan, or all its numbers with --json; BudgetError if no plan fits."""
    from layermem.integrations.graph_files.planner import GraphPlanner
    from layermem.integrations.graph_files.schedule_text import missing_reads
    from layermem.integrations.graph_files.text_format import read_graph

    check_name(arguments.output, (), "a schedule")
    check_output(arguments.output, arguments.draw)
    if arguments.graph.endswith(".json"):
        return _run_node_link(arguments)
    if not arguments.time_limit > 0:
        raise InputError(f"--time-limit {arguments.time_limit:g} is not above 0; give a number of seconds")
    check_name(arguments.draw, (), "a graph in DOT")
    graph = read_graph(arguments.graph)
    if arguments.check:
        return _check_schedule(graph, arguments)
    with show_progress(None, f"planning {arguments.graph}"):
        planner = GraphPlanner(graph, arguments.family, arguments.model, arguments.reads, arguments.op_costs)
        whole = planner.values.total_bytes
        budget_bytes = None if arguments.budget is None else parse_bytes(arguments.budget, whole=whole)
        plan = planner.plan(budget_bytes, OBJECTIVES[arguments.objective], arguments.time_limit)
    if arguments.draw and plan.feasible:
        from layermem.integrations.graph_files.drawing import segments_dot

        if not plan.chain:
            raise InputError("--draw shows segments, and family 'nested' has none; use another --family")
        write_atomically(arguments.draw, segments_dot(planner.values, plan.chain).encode())
    if plan.feasible:
        _write_schedule(plan.schedule, arguments)
    if arguments.json:
        print_json(_values(plan))
    elif plan.feasible:
        _print_summary(_figures(plan), plan.schedule, arguments)
        if missing := missing_reads(planner.values.graph, plan.schedule):
            note = f"note: reads 'inputs' is an assumption: {missing} backwards of this schedule read, by the file, "
            print(wrap(f"{note}data that it has dropped; --reads file recomputes or keeps them"), file=sys.stderr)
    if not plan.feasible:
        raise _refusal(plan, arguments)
    return 0


def _check_schedule(graph: GraphFile, arguments: argparse.Namespace) -> int:
    """Run a schedule on the sizes of the graph, and print its figures; InputError for the line that cannot run."""
    from layermem.integrations.graph_files.planner import default_reads
    from layermem.integrations.graph_files.schedule_text import run_on_values
    from layermem.integrations.graph_files.value_graph import ValueGraph

    if arguments.draw or arguments.output:
        option = "--draw shows the segments" if arguments.draw else "--output writes the schedule"
        raise InputError(f"{option} of a plan, which --check does not make; give only one of them")
    text = "\n".join(read_lines(arguments.check, what="schedule"))
    values = ValueGraph(graph, arguments.reads or default_reads(arguments.model), arguments.op_costs)
    try:
        peak_bytes, cost = run_on_values(values, text)
    except InputError as error:
        raise error.at(path=arguments.check) from None
    forward, unit = sum(values.costs), values.cost_unit
    if arguments.json:
        figures = {"peak_bytes": peak_bytes, "cost_forward": forward, "cost_recomputed": cost - forward}
        print_json(figures | {"cost_unit": unit})
    else:
        print(f"peak            {format_exact_bytes(peak_bytes)}")
        print(f"recomputes      {_cost_text(cost - forward, unit)} of {_cost_text(forward, unit)}")
    budget_bytes = parse_bytes(arguments.budget or "100%", whole=values.total_bytes)
    if peak_bytes > budget_bytes:
        what = (
            f"the schedule needs {format_exact_bytes(peak_bytes)}, and the budget is {format_exact_bytes(budget_bytes)}"
        )
        raise BudgetError(what, budget_bytes=budget_bytes, minimum_bytes=peak_bytes)
    return 0


def _write_schedule(schedule: str, arguments: argparse.Namespace) -> None:
    if arguments.output:
        write_atomically(arguments.output, schedule.encode())


def _print_summary(figures: dict[str, str], schedule: str, arguments: argparse.Namespace) -> None:
    """Print one line per figure and where the schedule is; with --verbose, the schedule itself below them."""
    where = f"in {arguments.output}" if arguments.output else "(-o S.txt writes them, -v prints them)"
    for label, text in (figures | {"schedule": f"{count_text(schedule.count(chr(10)), 'line')} {where}"}).items():
        print(wrap(f"{label:<14}  {text}"))
    if arguments.verbose:
        print(schedule, end="")


def _figures(plan: GraphPlan) -> dict[str, str]:
    """The peak, the recomputation, its distance from the lower bound, and the segments of a plan that fits."""
    recomputed = plan.cost_recomputed or 0
    again, bound, gap = (
        f"{100 * cost / max(plan.cost_forward, 1):.1f} %"
        for cost in (recomputed, plan.cost_bound, recomputed - plan.cost_bound)
    )
    cost, forward, least = (
        _cost_text(each, plan.cost_unit) for each in (recomputed, plan.cost_forward, plan.cost_bound)
    )
    return {
        "peak": format_exact_bytes(plan.peak_bytes or 0),
        "budget": format_exact_bytes(plan.budget_bytes),
        "recomputes": f"{cost} of {forward} ({again})",
        "lower bound": f"{least} ({bound}) of any plan; optimality gap <= {gap}",
    } | ({"segments": f"{len(plan.chain):,}"} if plan.chain else {})


def _cost_text(cost: int, unit: str) -> str:
    from layermem.integrations.graph_files.text_format import NANOSECONDS

    return format_seconds(cost / 1e9) if unit == NANOSECONDS else str(cost)


NOT_OF_JSON = {
    "objective": "time",
    "family": "extended",
    "model": "live",
    "reads": None,
    "op_costs": "file",
    "time_limit": 60.0,
    "check": None,
    "draw": None,
}


def _run_node_link(arguments: argparse.Namespace) -> int:
    from layermem.integrations.graph_files.node_link import read_node_link, run_sequence, sequence_text

    for name, default in NOT_OF_JSON.items():
        if getattr(arguments, name) != default:
            raise InputError(f"--{name.replace('_', '-')} has no effect on node-link JSON; leave it out")
    graph = read_node_link(arguments.graph)
    if arguments.budget is None:
        raise InputError("node-link JSON needs a budget; give --budget, such as --budget 80%", path=arguments.graph)
    budget_bytes = parse_bytes(arguments.budget, whole=graph.order_bytes)
    with show_progress(None, f"planning {arguments.graph}"):
        sequence = _sequence_within(graph, budget_bytes)
    peak_bytes, cost = run_sequence(graph, sequence)
    recomputed, schedule = cost - graph.total_cost, sequence_text(graph, sequence)
    _write_schedule(schedule, arguments)
    if arguments.json:
        print_json(
            {
                "budget_bytes": budget_bytes,
                "peak_bytes": peak_bytes,
                "order_bytes": graph.order_bytes,
                "least_bytes": graph.least_bytes,
                "cost_once": graph.total_cost,
                "cost_recomputed": recomputed,
                "sequence": sequence,
            }
        )
        return 0
    again = f"{100 * recomputed / max(graph.total_cost, 1):.1f} %"
    figures = {
        "peak": f"{format_exact_bytes(peak_bytes)}; {format_exact_bytes(graph.order_bytes)} in the given order",
        "budget": format_exact_bytes(budget_bytes),
        "recomputes": f"{recomputed:g} of {graph.total_cost:g} ({again})",
    }
    _print_summary(figures, schedule, arguments)
    return 0


def _sequence_within(graph: NodeLinkGraph, budget_bytes: int) -> list[int]:
    from layermem.integrations.graph_files.node_order import plan_order

    sequence = plan_order(graph, budget_bytes)
    if sequence is None:
        raise BudgetError(
            f"no sequence was found within {format_exact_bytes(budget_bytes)}; the largest run needs "
            f"{format_exact_bytes(graph.least_bytes)}, and the given order {format_exact_bytes(graph.order_bytes)}; "
            "give a larger --budget",
            budget_bytes=budget_bytes,
            minimum_bytes=graph.least_bytes,
        )
    return sequence


def _refusal(plan: GraphPlan, arguments: argparse.Namespace) -> BudgetError:
    minimum = "minimum" if plan.minimum_proven else "smallest budget found"
    nested = "" if arguments.family == "nested" or arguments.model == "paper" else "; --family nested may need less"
    return BudgetError(
        f"budget {format_below(plan.budget_bytes, plan.minimum_bytes)} is below the {minimum} of family "
        f"'{arguments.family}' under model '{arguments.model}', {format_exact_bytes(plan.minimum_bytes)}{nested}.",
        budget_bytes=plan.budget_bytes,
        minimum_bytes=plan.minimum_bytes,
    )


def _values(plan: GraphPlan) -> dict[str, object]:
    names = (
        "feasible",
        "budget_bytes",
        "cost_unit",
        "cost_forward",
        "cost_bound",
        "cost_recomputed",
        "peak_bytes",
        "peak_formula_bytes",
        "reads",
        "minimum_bytes",
        "minimum_proven",
        "lower_sets",
        "seconds",
        "proven_optimal",
    )
    return {name: getattr(plan, name) for name in names}
