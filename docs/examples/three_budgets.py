"""Train the digits under three budgets: the memory differs, the weights do not.

python docs/examples/three_budgets.py [iterations]
"""

import sys
from pathlib import Path

import numpy as np

import layermem

SOLVER = Path(__file__).parents[2] / "prototxt/digits/solver.prototxt"


def main(iterations: int) -> None:
    runs = {}
    for budget in (None, "50%", "39%"):
        solver = layermem.Solver(SOLVER, budget=budget)
        solver.step(iterations)
        runs[budget] = solver.parameters()
        print(f"budget {budget}: strategy {solver.report.strategy}, {solver.report.peak_bytes:,} bytes")
        print(f"  loss {solver.outputs['loss']:.6f} after {solver.iteration} iterations")
        solver.close()
    first, *others = runs.values()
    equal = all(np.array_equal(run[name], first[name]) for run in others for name in first)
    print("weights are equal, bit by bit" if equal else "weights differ")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
