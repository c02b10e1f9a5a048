"""Nested recomputation on graph files beside lower sets and the lower bound, and on small graphs beside the optimum.

python tools/bench_nested.py FOLDER       cg_*.txt of github.com/pfnet-research/recompute in FOLDER
--nets unet,resnet50   some of them
--reads R              inputs (default, as in the paper) or file
python tools/bench_nested.py --random N   N random graphs of each number of values, beside the optimum of all schedules
--values 2,3,8         numbers of values (2 to 7; a graph of 8 takes seconds)

Every schedule is run line by line: its peak is within the budget, and its cost that of the plan.  The optimum is found
by walking all states there are (tests/native/test_planning_free_form.py).
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from itertools import combinations
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from layermem.planning.graph_files.planner import GraphPlan, GraphPlanner
from layermem.planning.graph_files.schedule_text import run_schedule
from layermem.planning.graph_files.text_format import Function, GraphFile, Variable, read_graph

SHARES = {  # budgets in % of 2 M(V), all values and all gradients at once
    "vgg19": (18, 20, 25, 30),
    "unet": (12.1, 17, 20, 25, 30),
    "resnet50": (6, 9.3, 15, 20),
    "resnet152": (3.5, 6, 10, 15),
    "densenet": (3, 7, 10, 15),
    "googlenet": (12.2, 14, 20),
    "pspnet": (4, 6, 10, 15),
}


def planned(planner: GraphPlanner, graph: GraphFile, budget_bytes: int, reads: str) -> tuple[GraphPlan, float]:
    """A checked plan, and the seconds of CPU time that it took."""
    begin = time.process_time()
    plan = planner.plan(budget_bytes)
    seconds = time.process_time() - begin
    if plan.feasible:
        peak_bytes, cost = run_schedule(graph, plan.schedule, reads)
        assert peak_bytes <= budget_bytes and cost == plan.cost_forward + (plan.cost_recomputed or 0)
    return plan, seconds


def percent(plan: GraphPlan, cost: int | None) -> str:
    return "-" if cost is None else f"{100 * cost / plan.cost_forward:.1f}"


def bench_files(folder: Path, names: list[str], reads: str) -> None:
    print("| net | budget | MB | lower sets | nested | bound | CPU seconds |\n|" + "---|" * 7, flush=True)
    for name in names:
        graph = read_graph(folder / f"cg_{name}.txt")
        lower = GraphPlanner(graph, "extended", reads=reads)
        for share in SHARES[name]:
            budget_bytes = int(lower.values.total_bytes * share / 100)
            begin = time.process_time()
            nested = GraphPlanner(graph, "nested", reads=reads)
            built = time.process_time() - begin
            by_sets, _ = planned(lower, graph, budget_bytes, reads)
            plan, seconds = planned(nested, graph, budget_bytes, reads)
            costs = (by_sets.cost_recomputed, plan.cost_recomputed, plan.cost_bound)
            cells = [name, f"{share} %", f"{budget_bytes / 1e6:.0f}", *(percent(plan, cost) for cost in costs)]
            print("| " + " | ".join([*cells, f"{built + seconds:.2f}"]) + " |", flush=True)


def random_file(draw: random.Random, count: int) -> GraphFile:
    """A graph file of one function a value, whose backwards read what their functions read."""
    density = draw.choice((0.3, 0.5))
    edges = [pair for pair in combinations(range(count), 2) if draw.random() < density]
    variables = tuple(Variable(draw.randint(1, 9), "_") for _ in range(count))
    forward, backward = [], []
    for v in range(count):
        kind = "Convolution2DFunction" if draw.random() < 0.3 else "ReLU"
        reads = tuple(u for u, w in edges if w == v)
        forward.append(Function("forward", kind, tuple((u, "_") for u in reads), (v,)))
        needs = ((v, "gradient"), *((u, "input") for u in reads))
        backward.append(Function("backward", kind, needs, reads))
    return GraphFile(variables, tuple(forward), tuple(backward))


def bench_random(cases: int, counts: list[int], seed: int) -> None:
    """How often plans at the least budget, and at others up to the peak without recomputation, equal the optimum."""
    from tests.native.test_planning_free_form import FreeForm

    draw = random.Random(seed)
    print("| values | cases | lower sets equal | nested equal | nested above, mean | bound equal |\n|" + "---|" * 6)
    for count in counts:
        equal, by_sets_equal, bound_equal, above = 0, 0, 0, []
        for _ in range(cases):
            graph = random_file(draw, count)
            nested, lower = (GraphPlanner(graph, family, reads="inputs") for family in ("nested", "extended"))
            values = nested.values
            least, most = nested.plan().budget_bytes, values.total_bytes
            budget_bytes = draw.choice((least, (3 * least + most) // 4, draw.randint(least, most)))
            free = FreeForm(values.costs, values.bytes, [(u, v) for v, us in enumerate(values.before) for u in us])
            optimum = free.least_time(budget_bytes)
            plan, _ = planned(nested, graph, budget_bytes, "inputs")
            by_sets, _ = planned(lower, graph, budget_bytes, "inputs")
            assert optimum is not None and plan.cost_recomputed is not None
            assert plan.cost_bound <= optimum <= plan.cost_recomputed, "a plan or the bound passes the optimum"
            equal += plan.cost_recomputed == optimum
            by_sets_equal += by_sets.cost_recomputed == optimum
            bound_equal += plan.cost_bound == optimum
            above.append(100 * (plan.cost_recomputed - optimum) / plan.cost_forward)
        cells = (count, cases, by_sets_equal, equal, f"{sum(above) / cases:.2f} %", bound_equal)
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--nets", default=",".join(SHARES))
    parser.add_argument("--reads", choices=("inputs", "file"), default="inputs")
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--values", default="2,3,4,5,6,7")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if not arguments.folder and not arguments.random:
        parser.error("give a folder of cg_*.txt, or --random N")
    if arguments.folder:
        bench_files(arguments.folder, arguments.nets.split(","), arguments.reads)
    if arguments.random:
        bench_random(arguments.random, [*map(int, arguments.values.split(","))], arguments.seed)


if __name__ == "__main__":
    main()
