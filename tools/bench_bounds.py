"""How tight the lower bounds are: least predicted overhead of any plan, and of the plan of `auto`, at several budgets.

    python tools/bench_bounds.py [net ...]          the table of docs/benchmarks/bounds.md

Overheads are over a step of the same ops without recomputation and copies, for device `cuda` in tf32, without offload
(host budget 0) and with it.  Plans only; nothing runs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from layermem.errors import BudgetError
from layermem.graph.ops import Graph
from layermem.planning.bounds import least_bytes, least_seconds_of
from layermem.planning.costs import model_costs
from layermem.planning.hints import Hints
from layermem.planning.pipeline import Compiler
from layermem.schedule.arena_planner import ArenaPlanner
from tools.bench_strategies import graph_of, machine

MIB = 2**20
CASES = {
    "resnet50": (96, (1403, 1600, 1800, 2000, 2090, 2381, 4011)),
    "googlenet": (256, (1236, 1474, 1700, 1922, 2667)),
    "unet": (8, (1861, 2103, 2400, 2555, 2750, 3310)),
    "vgg16": (64, (1637, 2702, 3257)),
}  # net: batch, budgets in MiB
COSTS = model_costs("cuda tf32")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", help=f"of {', '.join(CASES)} (all)")
    args = parser.parse_args()
    print(f"Predicted, {machine()}.\n\n| net | offload | MiB | bound | auto | its base |\n|---|---|---|---|---|---|")
    for name in args.nets or CASES:
        batch, budgets = CASES[name]
        graph = graph_of(name, batch, "cuda")[1]
        start = time.perf_counter()
        for offload, host_bytes in (("no", 0), ("yes", None)):
            for row in rows(graph, host_bytes, budgets):
                print(f"| {name} x{batch} | {offload} | {row} |", flush=True)
        print(f"{name}: {time.perf_counter() - start:.1f} s, plans included", file=sys.stderr)


def rows(graph: Graph, host_bytes: int | None, budgets: tuple[int, ...]) -> Iterator[str]:
    """Budget, bound, overhead and base of `auto`, as cells."""
    search = Compiler(ArenaPlanner([graph], COSTS), "auto", Hints(host_budget_bytes=host_bytes)).search
    once = sum(COSTS.op(op) for op in graph.ops)
    fewest = least_bytes(graph, host_bytes)
    for mib, bound in zip(budgets, least_seconds_of(graph, COSTS, [mib * MIB for mib in budgets], host_bytes)):
        least = percent(bound / once - 1) if mib * MIB >= fewest else "none fits"
        try:
            program = search.program(mib * MIB)
            yield f"{mib:,} | {least} | {percent(program.seconds / once - 1)} | {program.plan.base}"
        except BudgetError:
            yield f"{mib:,} | {least} | - | "


def percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %")


if __name__ == "__main__":
    main()
