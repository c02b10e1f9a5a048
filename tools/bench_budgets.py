"""Predicted time of a step within budgets far below what reuse needs, over links of several speeds.  Plans only.

    python tools/bench_budgets.py                    the rows of docs/benchmarks/recompute.md
    python tools/bench_budgets.py resnet50 vgg16     rows of these nets
    python tools/bench_budgets.py --apart 'Conv.*'   no masks or moments in epilogues (Device.fusions)

Costs are those of device cuda in precision tf32, with the link of the row each way (0: none).  An overhead is against
every op once, as is the bound, what no plan can do better (planning/bounds.py).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from layermem.api import build_net, job_of_net
from layermem.backends.base import get_device
from layermem.planning.bounds import least_seconds
from layermem.planning.costs import Costs, model_costs
from layermem.planning.hints import Hints
from layermem.planning.strategies import get_strategy
from layermem.schedule.arena_planner import ArenaPlanner
from layermem.utils.units import format_change

NETS = Path(__file__).resolve().parents[1] / "prototxt"
MIB = 2**20
NO_LINK = 1.0  # bytes per second
# net, batch, GB/s of the link, budgets in MiB
ROWS = [
    ("resnet50", 96, 45, (1403, 1800, 2000, 2381)), ("resnet50", 96, 12, (1403, 1800, 2000, 2381)),
    ("resnet50", 96, 0, (1600, 1800, 2090, 2381)), ("resnet152", 48, 0, (1200, 1400, 1650)),
    ("vgg16", 64, 45, (1637, 2702, 3257)), ("googlenet", 256, 45, (1236, 1474, 1922)),
    ("unet", 8, 45, (1861, 2103, 2555, 3310)), ("unet", 8, 0, (2750, 3310)),
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", help="folders below prototxt/ (all of the table)")
    parser.add_argument("--apart", metavar="GLOB", default="", help="fused ops that run as the ops of their layers")
    args = parser.parse_args()
    print(
        "| net, batch | link, GB/s | budget, MiB | ms | auto | run again | gaps on the host | bound | seconds to plan |"
    )
    print("|" + "---|" * 9)
    for net, batch, link, budgets in ROWS:
        if not args.nets or net in args.nets:
            for line in lines(net, batch, link, budgets, args.apart):
                print(line, flush=True)


def lines(net: str, batch: int, link: int, budgets: tuple[int, ...], apart: str) -> Iterator[str]:
    device = get_device("cuda", precision="tf32")
    device.fusions = frozenset(name for name in device.fusions if not fnmatchcase(name, apart))
    built = build_net(NETS / net / "train_val.prototxt", batch=batch)
    [graph, *_] = job_of_net(built, device, model_costs(device.title)).graphs
    costs = model_costs(device.title)
    rate = link * 1e9 or NO_LINK
    costs = Costs(replace(costs.rates, d2h=rate, h2d=rate))
    once = sum(costs.op(op) for op in graph.ops)
    for budget in budgets:
        evaluator = ArenaPlanner([graph], costs)
        began = time.process_time()
        plan = get_strategy("auto").make(graph, costs, budget * MIB, evaluator, Hints())
        seconds = time.process_time() - began
        fits = evaluator.live_bytes(plan) <= budget * MIB
        predicted = evaluator.estimate_seconds(plan)
        cells = f"{predicted * 1e3:.1f} | {format_change(predicted / once - 1)}" if fits else "- | -"
        bound = format_change(least_seconds(graph, costs, budget * MIB) / once - 1)
        again = len(plan.order) - len(set(plan.order))
        yield (
            f"| {net} x{batch} | {link or 'none'} | {budget:,} | {cells} | {again} | {len(plan.decisions)} "
            f"| {bound} | {seconds:.1f} |"
        )


if __name__ == "__main__":
    main()
