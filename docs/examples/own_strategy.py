"""A strategy of your own: offload the largest activations, one after the other, until the step fits.

python docs/examples/own_strategy.py
"""

from dataclasses import replace
from pathlib import Path

import layermem
from layermem.graph.ops import Graph
from layermem.planning.costs import Costs
from layermem.planning.hints import Hints
from layermem.planning.offloading import HostBudget, activations, crossing_gaps
from layermem.planning.plan import REUSE, Plan, program_order
from layermem.planning.registry import PlanEvaluator, strategy

SOLVER = Path(__file__).parents[2] / "prototxt/digits/solver.prototxt"


@strategy("largest-first", description="offload the largest activations until the step fits", offloads=True)
def largest_first(graph: Graph, costs: Costs, budget_bytes: int | None, evaluator: PlanEvaluator, hints: Hints) -> Plan:
    plan = Plan("largest-first", program_order(graph), {}, REUSE)
    gaps = crossing_gaps(graph, activations(graph), HostBudget(graph, hints))
    for gap in sorted(gaps, key=lambda gap: -graph.buffers[gap.buffer].nbytes):
        if budget_bytes is not None and evaluator.live_bytes(plan) <= budget_bytes:
            break
        plan = replace(plan, decisions={**plan.decisions, gap: gaps[gap]})
    return plan


def main() -> None:
    for name in ("liveness", "largest-first"):
        budget = None if name == "liveness" else "37%"
        solver = layermem.Solver(SOLVER, strategy=name, budget=budget, host_budget="1MiB")
        solver.step(20)
        report = solver.report
        print(f"{name}: {report.peak_bytes:,} bytes, {report.offloaded_bytes:,} offloaded", end=", ")
        print(f"loss {solver.outputs['loss']:.6f}")
        solver.close()


if __name__ == "__main__":
    main()
