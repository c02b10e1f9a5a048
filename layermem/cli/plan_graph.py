"""plan-graph: recomputation for a computational graph in a file, as a schedule text."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from layermem.cli.old_names import objective
from layermem.cli.options import Verbs, add_json, add_verb, print_json
from layermem.errors import BudgetError, InputError
from layermem.utils.text import wrap
from layermem.utils.units import format_below, format_exact_bytes, parse_bytes

if TYPE_CHECKING:
    from layermem.planning.graph_files.planner import GraphPlan

EXAMPLE = """\
  layermem examples unet
  layermem plan --net unet/train_val.prototxt --export-graph unet.txt
  layermem plan-graph unet.txt --budget 50% --family exact
"""
OBJECTIVES = {"time": "T", "memory": "M"}


def add_verbs(verbs: Verbs) -> None:
    description = "plan recomputation for a graph file (format of Kusumoto et al.) and print its schedule"
    parser = add_verb(verbs, "plan-graph", description, EXAMPLE)
    parser.add_argument("graph", metavar="FILE", help="a graph file, such as `layermem plan --export-graph` writes")
    parser.add_argument(
        "-b", "--budget", metavar="B",
        help="bytes, or %% of all values and gradients (default: the minimum)",
    )  # fmt: skip
    parser.add_argument(
        "--objective", choices=OBJECTIVES, type=objective, default="time",
        help="time: least recomputation; memory: coarse segments, which liveness shrinks (default: time)",
    )  # fmt: skip
    parser.add_argument(
        "--family", choices=("extended", "exact", "approx"), default="extended",
        help="the lower sets at which a segment may end (default: extended)",
    )  # fmt: skip
    parser.add_argument(
        "--model", choices=("live", "paper"), default="live",
        help="what the budget bounds: exact liveness, or the paper's formula (default: live)",
    )  # fmt: skip
    parser.add_argument(
        "--reads", choices=("file", "inputs"),
        help="data that a backward reads: what the file lists, or all inputs of its function and no output, as the "
             "paper's formula assumes (default: file; inputs under model paper)",
    )  # fmt: skip
    parser.add_argument(
        "--time-limit", metavar="S", type=float, default=60.0,
        help="seconds of each search, after which its best plan so far counts (default: 60)",
    )  # fmt: skip
    add_json(parser)
    parser.set_defaults(run=run_plan_graph)


def run_plan_graph(arguments: argparse.Namespace) -> int:
    """Print the schedule, or the numbers with --json; BudgetError if no plan fits."""
    from layermem.planning.graph_files.planner import GraphPlanner
    from layermem.planning.graph_files.schedule_text import missing_reads
    from layermem.planning.graph_files.text_format import read_graph

    if not arguments.time_limit > 0:
        raise InputError(f"--time-limit {arguments.time_limit:g} is not above 0; give a number of seconds")
    planner = GraphPlanner(read_graph(arguments.graph), arguments.family, arguments.model, arguments.reads)
    budget_bytes = None if arguments.budget is None else parse_bytes(arguments.budget, whole=planner.values.total_bytes)
    plan = planner.plan(budget_bytes, OBJECTIVES[arguments.objective], arguments.time_limit)
    if arguments.json:
        print_json(_values(plan))
    elif plan.feasible:
        print(plan.schedule, end="")
        if missing := missing_reads(planner.values.graph, plan.schedule):
            note = f"note: reads 'inputs' is an assumption: {missing} backwards of this schedule read, by the file, "
            print(wrap(f"{note}data that it has dropped; --reads file recomputes or keeps them"), file=sys.stderr)
    if not plan.feasible:
        raise _refusal(plan, arguments)
    return 0


def _refusal(plan: GraphPlan, arguments: argparse.Namespace) -> BudgetError:
    minimum = "minimum" if plan.minimum_proven else "smallest budget found"
    return BudgetError(
        f"budget {format_below(plan.budget_bytes, plan.minimum_bytes)} is below the {minimum} of family "
        f"'{arguments.family}' under model '{arguments.model}', {format_exact_bytes(plan.minimum_bytes)}.",
        budget_bytes=plan.budget_bytes,
        minimum_bytes=plan.minimum_bytes,
    )


def _values(plan: GraphPlan) -> dict[str, object]:
    names = (
        "feasible", "budget_bytes", "cost_forward", "cost_recomputed", "peak_bytes", "peak_formula_bytes",
        "reads", "minimum_bytes", "minimum_proven", "lower_sets", "seconds", "proven_optimal",
    )  # fmt: skip
    return {name: getattr(plan, name) for name in names}
