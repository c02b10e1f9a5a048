"""The least recomputation that any sequence of a node-link graph needs within a budget, proved by integer programming.

    python -m venv /tmp/solver && /tmp/solver/bin/pip install highspy numpy protobuf
    PYTHONPATH=. /tmp/solver/bin/python tools/prove_recomputation.py FOLDER/*.json --budgets 90 80

A node may run any number of times, in any order that the links allow.  The first runs of nodes c1, c2, ... of a
longest path follow each other in every sequence; stage t ends with the first run of c_t.  Binary variables tell
whether a node runs in a stage, whether an output that exists before a stage is read in it or later, and whether it is
held through a whole stage, in which its node does not run.  Every sequence within the budget satisfies the rows of
`relaxation`, and costs at least what its variables cost: the least cost of the rows is a lower bound.  It may be too
low, as the order within a stage is open, and a node that runs twice in it counts once.  Fewer stages are solved sooner.

source  the stages of Jain et al., "Checkmate: Breaking the Memory Wall with Optimal Tensor Rematerialization", MLSys
        2020, relaxed so that they also hold for a free order and for nodes that run twice between two first runs
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from layermem.integrations.graph_files.node_link import NodeLinkGraph, read_node_link, run_sequence
from layermem.integrations.graph_files.node_order import plan_order

Key = tuple[int, int]  # stage, node


@dataclass
class Program:
    """The least sum of `cost` times variables from 0 to 1, of which all but `live` are whole, where each row (least,
    terms) adds up to `least` or more."""

    path: tuple[int, ...]
    cost: list[int] = field(default_factory=list)
    rows: list[tuple[int, list[tuple[int, int]]]] = field(default_factory=list)  # terms: coefficient, variable
    runs: dict[Key, int] = field(default_factory=dict)
    kept: dict[Key, int] = field(default_factory=dict)  # in memory before the stage, for a read in it or later
    held: dict[Key, int] = field(default_factory=dict)  # in memory during the whole stage
    live: list[int] = field(default_factory=list)  # bytes of all that is held in a stage, in budgets

    def variable(self, cost: int = 0) -> int:
        self.cost.append(cost)
        return len(self.cost) - 1

    def require(self, least: int, *terms: tuple[int, int | None]) -> None:
        self.rows.append((least, [(factor, each) for factor, each in terms if each is not None]))


def relaxation(graph: NodeLinkGraph, budget_bytes: int, spare_cost: int, stages_wanted: int = 100) -> Program:
    """The rows that every sequence within `budget_bytes` satisfies that costs at most `spare_cost` over running each
    node once."""
    below = [{v} for v in range(len(graph.bytes))]
    longest: dict[int, tuple[int, ...]] = {}
    for v in graph.order:
        longest[v] = (*max((longest[u] for u in graph.reads[v]), key=len, default=()), v)
    for v in reversed(graph.order):
        for u in graph.reads[v]:
            below[u] |= below[v]
    path = max(longest.values(), key=len)
    program = Program(path[:: -(-len(path) // stages_wanted)])
    stages = range(len(program.path) + 1)
    for v in graph.order:
        before = [t for t, c in enumerate(program.path) if v in below[c]]
        after = [t for t, c in enumerate(program.path) if c in below[v]]
        first = before[-1] if v in program.path else len(before)
        last = after[0] if after else stages[-1]
        for t in stages[first:]:
            if t <= last or graph.cost[v] <= spare_cost:
                program.runs[t, v] = program.variable(graph.cost[v])
            if t > first and len(below[v]) > 1:
                program.kept[t, v] = program.variable()
        program.require(1, *((1, program.runs[t, v]) for t in range(first, last + 1)))
    for t in stages:
        _add_stage(program, graph, budget_bytes, t)
    return program


def _add_stage(program: Program, graph: NodeLinkGraph, budget_bytes: int, t: int) -> None:
    """Add the constraints of stage `t`: each value that a run reads has run or is kept, and the values that are held,
    with those that a run reads and writes, fit the budget."""
    runs, kept, nbytes = program.runs, program.kept, graph.bytes
    program.live.append(live := program.variable())
    held: dict[int, int] = {}
    later = {v: kept[t + 1, v] for v in graph.order if (t + 1, v) in kept}
    for v, each in later.items():
        program.require(0, (1, kept.get((t, v))), (1, runs.get((t, v))), (-1, each))
        if (t, v) in kept:
            held[v] = program.held[t, v] = program.variable()
            program.require(0, (1, held[v]), (1, runs.get((t, v))), (-1, each))
    program.require(0, (budget_bytes, live), *((-nbytes[v], each) for v, each in held.items()))
    for v in graph.order:
        if (t, v) in runs:
            for u in graph.reads[v]:
                program.require(0, (1, kept.get((t, u))), (1, runs.get((t, u))), (-1, runs[t, v]))
            touched = (v, *graph.reads[v])
            beside = [(nbytes[u], held[u]) for u in touched if u in held]
            needs = sum(nbytes[u] for u in touched)
            program.require(-budget_bytes, (-budget_bytes, live), (-needs, runs[t, v]), *beside)
    if t < len(program.path):  # the last run of the stage
        touched = (program.path[t], *graph.reads[program.path[t]])
        others = [(-nbytes[v], each) for v, each in later.items() if v not in touched]
        program.require(sum(nbytes[u] for u in touched) - budget_bytes, *others)


def prove(program: Program, total_cost: int, seconds: float) -> float:
    """A lower bound of the recomputation in % of `total_cost`; infinite if no sequence fits."""
    import highspy
    import numpy as np

    solver = highspy.Highs()
    for option, value in {"output_flag": False, "threads": 1, "time_limit": seconds, "mip_rel_gap": 0.0}.items():
        solver.setOptionValue(option, value)
    solver.addVars(len(program.cost), np.zeros(len(program.cost)), np.ones(len(program.cost)))
    for each, cost in enumerate(program.cost):
        solver.changeColCost(each, 100 * cost / total_cost)
        if each not in program.live:
            solver.changeColIntegrality(each, highspy.HighsVarType.kInteger)
    for least, terms in program.rows:
        factors, columns = np.array(terms, np.float64).reshape(-1, 2).T
        scale = abs(factors).max(initial=1)
        solver.addRow(least / scale, highspy.kHighsInf, len(terms), columns.astype(np.int32), factors / scale)
    solver.run()
    infeasible = solver.getModelStatus() == highspy.HighsModelStatus.kInfeasible
    return float("inf") if infeasible else max(0.0, float(solver.getInfo().mip_dual_bound) - 100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+", type=Path, metavar="GRAPH")
    parser.add_argument("--budgets", nargs="+", type=int, default=[90, 80], metavar="%", help="of the order's peak")
    parser.add_argument("--stages", type=int, default=100, help="at most")
    parser.add_argument("--seconds", type=float, default=300.0, help="limit of each proof, on one thread")
    options = parser.parse_args()
    print("graph\tbudget, %\tplanned, %\tat least, %")
    for path in options.graphs:
        graph = read_node_link(path)
        for share in options.budgets:
            budget_bytes = graph.order_bytes * share // 100
            sequence = plan_order(graph, budget_bytes)
            cost = run_sequence(graph, sequence)[1] if sequence else sys.maxsize
            program = relaxation(graph, budget_bytes, cost - graph.total_cost, options.stages)
            planned = 100 * (cost / graph.total_cost - 1) if sequence else float("inf")
            least = prove(program, graph.total_cost, options.seconds)
            print(f"{path.name}\t{share}\t{planned:.3f}\t{least:.3f}", flush=True)


if __name__ == "__main__":
    main()
