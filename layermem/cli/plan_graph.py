"""plan --graph: recomputation for a computational graph in a file, as a schedule text."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from layermem.cli.options import Options, print_json
from layermem.errors import BudgetError, InputError
from layermem.utils.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from layermem.planning.graph_files.planner import GraphPlan

OF_NETS = (
    "batch", "input", "net_stage", "net_level", "device", "costs", "strategy", "host_budget", "hints", "stage", "keep",
    "recompute", "schedule", "save", "load", "plot", "trace", "export_graph",
)  # fmt: skip
DEFAULTS = {"objective": "T", "family": "extended", "model": "live", "time_limit": 60.0}


def add_graph_options(parser: Options) -> None:
    """The options that go with --graph."""
    group = parser.add_argument_group("graph files (--graph, with --budget in bytes or % of all values and gradients)")
    group.add_argument(
        "-t", "--objective", choices=("T", "M"),
        help="T: least recomputation; M: most, in coarse segments that liveness shrinks (T)",
    )  # fmt: skip
    group.add_argument(
        "--family", choices=("extended", "exact", "approx"),
        help="the lower sets that a segment may end at (extended)",
    )  # fmt: skip
    group.add_argument(
        "--model", choices=("live", "paper"),
        help="what the budget bounds: exact liveness, or the formula of Kusumoto et al. (live)",
    )  # fmt: skip
    group.add_argument("--time-limit", metavar="S", type=float, help="seconds for a search, then the best so far (60)")


def refuse_graph_options(arguments: argparse.Namespace) -> None:
    """InputError for an option of graph files where a net is planned."""
    for option in DEFAULTS:
        if getattr(arguments, option) is not None:
            raise InputError(
                f"--{option.replace('_', '-')} goes with --graph; for a net, --strategy recompute, recompute-exact or "
                "recompute-approx names the family, and the model is exact liveness"
            )


def run_graph(arguments: argparse.Namespace) -> int:
    """Print the schedule, or the numbers with --json; BudgetError where nothing fits."""
    from layermem.planning.graph_files.planner import GraphPlanner
    from layermem.planning.graph_files.text_format import read_graph

    for option in OF_NETS:
        if getattr(arguments, option):
            raise InputError(f"--{option.replace('_', '-')} goes with --net or --solver, not with --graph")
    for option, default in DEFAULTS.items():
        if getattr(arguments, option) is None:
            setattr(arguments, option, default)
    if not arguments.time_limit > 0:
        raise InputError("--time-limit must be above 0 seconds")
    planner = GraphPlanner(read_graph(arguments.graph), arguments.family, arguments.model)
    budget = None if arguments.budget is None else parse_bytes(arguments.budget, whole=planner.values.total_bytes)
    plan = planner.plan(budget, arguments.objective, arguments.time_limit)
    if arguments.json:
        print_json(_values(plan))
    elif plan.feasible:
        print(plan.schedule, end="")
    if plan.feasible:
        return 0
    least = "the least budget is" if plan.minimum_proven else "the least budget found is"
    raise BudgetError(
        f"no plan of the {arguments.family} family fits {plan.budget_bytes} bytes under the {arguments.model} model; "
        f"{least} {plan.minimum_bytes} bytes ({format_bytes(plan.minimum_bytes)})",
        budget=plan.budget_bytes,
        minimum=plan.minimum_bytes,
    )


def _values(plan: GraphPlan) -> dict[str, Any]:
    names = (
        "feasible", "budget_bytes", "cost_forward", "cost_recomputed", "peak_bytes", "peak_formula_bytes",
        "minimum_bytes", "minimum_proven", "lower_sets", "seconds", "proven_optimal",
    )  # fmt: skip
    return {name: getattr(plan, name) for name in names}
