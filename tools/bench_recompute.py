"""Recomputation plans for the graphs of Kusumoto et al., beside known results.

python tools/bench_recompute.py FOLDER             every cg_*.txt of github.com/pfnet-research/recompute in FOLDER
python tools/bench_recompute.py FOLDER --nets vgg19,unet
--limit S     seconds per cell (60); a value marked * is the best of the search so far, not proven optimal
--families F  some of approx,extended,exact
--models M    some of paper,live
--shares S    budgets, in % of 2 M(V): all values and all gradients at once (15,20,25,30,40)
--few         the exact family only on nets with up to 600 lower sets

A backward is taken to read the inputs of its function, as in the paper.
Overheads are in % of a forward pass.  Targets are results of an earlier planner on the same model: `ok` is at or below
the target, `+1.2` above it by that many points.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from layermem.planning.graph_files.planner import GraphPlanner
from layermem.planning.graph_files.text_format import GraphFile, read_graph

SHARES = "15,20,25,30,40"
MODELS, FAMILIES = ("paper", "live"), ("approx", "extended", "exact")
EXACT_SETS = 600
INFEASIBLE = float("inf")

# (net, share): overhead in % under (paper, live), for (approx, extended, exact); None: unknown
Triple = tuple[float | None, float | None, float | None]
TARGETS: dict[tuple[str, int], tuple[Triple, Triple]] = {
    ("vgg19", 25): ((INFEASIBLE, INFEASIBLE, INFEASIBLE), (14.2, 14.2, 14.2)),
    ("vgg19", 30): ((9.5, 9.5, 9.5), (4.2, 4.2, 4.2)),
    ("unet", 25): ((47.2, 38.5, 33.8), (32.5, 23.4, 23.4)),
    ("unet", 30): ((21.6, 13.9, 13.9), (16.9, 13.4, 13.4)),
    ("resnet50", 15): ((39.1, 37.1, 33.2), (31.1, 28.0, 24.3)),
    ("resnet50", 30): ((10.9, 6.4, 5.2), (7.8, 6.3, 5.1)),
    ("resnet152", 30): ((7.6, 6.3, 5.7), (7.1, 6.2, 5.7)),
    ("densenet", 30): ((3.3, 3.3, 3.3), (3.2, 3.2, 3.2)),
    ("pspnet", 15): ((50.3, 44.2, 42.3), (42.5, 40.3, None)),
    ("pspnet", 25): ((20.2, 14.2, 13.0), (15.0, 13.9, None)),
    ("pspnet", 40): ((10.1, 2.8, 2.8), (5.1, 2.7, None)),
    ("googlenet", 20): ((66.3, 6.8, None), (17.0, 5.1, None)),
    ("googlenet", 30): ((62.7, 2.0, None), (4.1, 1.8, None)),
}
# net: minimum in MB under the paper's formula (exact), and under exact liveness (approx, extended, exact)
MINIMA: dict[str, tuple[float | None, Triple]] = {
    "vgg19": (2107, (1747, 1747, 1747)),
    "unet": (5547, (4684, 4684, 4607)),
    "resnet50": (1259, (996, 996, 938)),
    "resnet152": (1464, (1131, 1131, 1105)),
    "densenet": (1676, (1266, 1266, 1266)),
    "pspnet": (1194, (912, 904, None)),
    "googlenet": (488, (373, 353, None)),
}


def mark(value: float, target: float | None, slack: float) -> str:
    """ " ok", or the difference of `value` above `target`; `slack` is the rounding of the target."""
    if target is None:
        return ""
    if value <= target + slack:
        return " ok"
    return " (fits in theirs)" if value == INFEASIBLE else f" +{value - target:.1f}"


def cell(planner: GraphPlanner, share: int, limit: float, target: float | None) -> tuple[str, float]:
    """The overhead at a budget, as text, and the seconds of planning."""
    begin = time.perf_counter()
    plan = planner.native.solve(int(planner.values.total_bytes * share / 100), "time", limit)
    seconds = time.perf_counter() - begin
    if plan is None:
        proven = planner.native.proven_infeasible
        return ("-" if proven else "-*") + mark(INFEASIBLE, target, 0), seconds
    value = 100 * plan.recompute_time / sum(planner.values.costs)
    return f"{value:.1f}{'' if plan.proven_optimal else '*'}{mark(value, target, 0.05)}", seconds


def bench(name: str, graph: GraphFile, arguments: argparse.Namespace) -> None:
    for model in arguments.models.split(","):
        for family in arguments.families.split(","):
            begin = time.perf_counter()
            planner = GraphPlanner(graph, family, model, "inputs")
            built = time.perf_counter() - begin
            if family == "exact" and arguments.few and planner.native.lower_sets > EXACT_SETS:
                print(f"| {name} | {model} {family} | {planner.native.lower_sets} | left out |", flush=True)
                continue
            print(row(name, planner, model, family, arguments, built), flush=True)


def row(name: str, planner: GraphPlanner, model: str, family: str, arguments: argparse.Namespace, built: float) -> str:
    limit = arguments.limit
    m, f = MODELS.index(model), FAMILIES.index(family)
    paper, live = MINIMA.get(name, (None, (None, None, None)))
    wanted = live[f] if model == "live" else (paper if family == "exact" else None)
    begin = time.perf_counter()
    least = planner.least(limit)
    prepared = built + time.perf_counter() - begin
    megabytes = least.model_peak_bytes / 1e6
    cells = [f"{megabytes:.0f}{'' if least.proven_optimal else '*'}{mark(megabytes, wanted, 0.5)}"]
    slowest = 0.0
    for share in map(int, arguments.shares.split(",")):
        targets = TARGETS.get((name, share))
        text, seconds = cell(planner, share, limit, targets[m][f] if targets else None)
        cells.append(text)
        slowest = max(slowest, seconds)
    times = [f"{prepared:.2f}", f"{slowest:.2f}"]
    return "| " + " | ".join([name, f"{model} {family}", str(planner.native.lower_sets), *cells, *times]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nets", help="names between cg_ and .txt, separated by commas (all)")
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--shares", default=SHARES)
    parser.add_argument("--few", action="store_true")
    arguments = parser.parse_args()
    names = (
        arguments.nets.split(",")
        if arguments.nets
        else sorted(p.stem.removeprefix("cg_") for p in arguments.folder.glob("cg_*.txt"))
    )
    for given, known in ((arguments.families, FAMILIES), (arguments.models, MODELS)):
        if not set(given.split(",")) <= set(known):
            parser.error(f"'{given}' should be some of {','.join(known)}")
    if not names:
        parser.error(f"there is no cg_*.txt in {arguments.folder}")
    columns = [
        "net",
        "plan",
        "lower sets",
        "least MB",
        *(f"{s} %" for s in arguments.shares.split(",")),
        "least s",
        "slowest budget s",
    ]
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns), flush=True)
    for name in names:
        bench(name, read_graph(arguments.folder / f"cg_{name}.txt"), arguments)


if __name__ == "__main__":
    main()
