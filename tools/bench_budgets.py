"""Predicted time of a step within budgets far below what reuse needs, over links of several speeds.  Nothing runs.

    python tools/bench_budgets.py                    the rows of docs/benchmarks/recompute.md
    python tools/bench_budgets.py resnet50 vgg16     rows of these nets
    python tools/bench_budgets.py --apart GLOB       fused ops that run apart in the left half of a row ('Conv.*': no
                                                     masks or moments in epilogues; Device.fusions)

Costs are those of device cuda in precision tf32, with the link of the row each way ("none": no host memory).  Every
plan is lowered, placed and checked (pipeline.py): times are those of the placed schedule, `peak` is its arena.  An
overhead is against every op once, as is the bound, what no plan can do better (planning/bounds.py).  "-" marks what
does not fit, FAILS a schedule that the checker rejects, or a peak above the budget; then the exit code is 1.  `CPU s`:
of both plans.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from layermem.api import build_net
from layermem.backends.base import get_device
from layermem.errors import BudgetError
from layermem.graph.ops import Graph
from layermem.planning.bounds import least_seconds
from layermem.planning.costs import Costs, model_costs
from layermem.planning.hints import Hints
from layermem.planning.pipeline import Compiler
from layermem.schedule.arena_planner import ArenaPlanner
from layermem.schedule.check import UnsafeSchedule
from layermem.solver.jobs import StepOptions, net_job
from layermem.utils.units import format_change

NETS = Path(__file__).resolve().parents[1] / "prototxt"
MIB = 2**20
FAILS = "FAILS"
# net, batch, GB/s of the link, budgets in MiB
ROWS = [
    ("resnet50", 96, 45, (1403, 1800, 2000, 2381)),
    ("resnet50", 96, 12, (1403, 1800, 2000, 2381)),
    ("resnet50", 96, 0, (1600, 1800, 2090, 2381)),
    ("resnet152", 48, 0, (1200, 1400, 1650)),
    ("vgg16", 64, 45, (1637, 1700, 2200, 2702, 3257)),
    ("vgg16", 64, 12, (2200,)),
    ("googlenet", 256, 45, (1236, 1474, 1922)),
    ("googlenet", 256, 0, (1922,)),
    ("unet", 8, 45, (1861, 2103, 2555, 3310)),
    ("unet", 8, 0, (2750, 3310)),
]
HALF = ("overhead", "peak, MiB", "run again", "bound")
COLUMNS = ("net, batch", "link, GB/s", "budget, MiB", "apart, ms", *HALF, "fused, ms", *HALF, "CPU s")


@dataclass(frozen=True)
class Case:
    """A step to plan: with the link's costs, and what its ops take, each once."""

    graph: Graph
    costs: Costs
    host_bytes: int | None  # None: no limit

    @property
    def once(self) -> float:
        return sum(self.costs.op(op) for op in self.graph.ops)


def case(net: str, batch: int, link: int, apart: str) -> Case:
    device = get_device("cuda", precision="tf32")
    device.fusions = frozenset(name for name in device.fusions if not fnmatchcase(name, apart))
    costs = model_costs(device.title)
    [graph, *_] = net_job(
        build_net(NETS / net / "train_val.prototxt", batch=batch), StepOptions(device=device, costs=costs)
    ).graphs
    rate = link * 1e9 or costs.rates.d2h
    return Case(graph, Costs(replace(costs.rates, d2h=rate, h2d=rate)), None if link else 0)


def cells(case: Case, budget_bytes: int) -> list[str]:
    """Milliseconds, overhead, placed peak, ops run again, and the bound."""
    bound = format_change(least_seconds(case.graph, case.costs, budget_bytes, case.host_bytes) / case.once - 1)
    compiler = Compiler(ArenaPlanner([case.graph], case.costs), "auto", Hints(host_budget_bytes=case.host_bytes))
    try:
        program = compiler.compile(budget_bytes)
    except BudgetError:
        return ["-", "-", "-", "-", bound]
    except UnsafeSchedule as error:
        print(error, file=sys.stderr)
        return [FAILS, "", "", "", bound]
    peak = f"{program.arena_bytes / MIB:,.1f}"
    order = program.plan.order
    return [
        f"{program.seconds * 1e3:.1f}",
        format_change(program.seconds / case.once - 1),
        peak if program.arena_bytes <= budget_bytes else f"{FAILS}: {peak}",
        str(len(order) - len(set(order))),
        bound,
    ]


def lines(net: str, batch: int, link: int, budgets: tuple[int, ...], apart: str) -> Iterator[str]:
    halves = case(net, batch, link, apart), case(net, batch, link, "")
    for budget in budgets:
        began = time.process_time()
        found = [cell for half in halves for cell in cells(half, budget * MIB)]
        spent = f"{time.process_time() - began:.1f}"
        yield "| " + " | ".join([f"{net} x{batch}", str(link or "none"), f"{budget:,}", *found, spent]) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", help="folders below prototxt/ (all of the table)")
    parser.add_argument(
        "--apart", metavar="GLOB", default="Conv.*", help="fused ops that run as the ops of their layers"
    )
    args = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    fails = False
    for net, batch, link, budgets in ROWS:
        if not args.nets or net in args.nets:
            for line in lines(net, batch, link, budgets, args.apart):
                print(line, flush=True)
                fails |= FAILS in line
    return int(fails)


if __name__ == "__main__":
    sys.exit(main())
