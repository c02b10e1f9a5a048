"""Train the digits under three budgets: the memory differs, the weights do not.

python docs/examples/equal_bits.py [iterations]
"""

import sys
from pathlib import Path

import layermem

SOLVER = Path(__file__).parents[2] / "prototxt/digits/solver.prototxt"


def main(iterations: int) -> None:
    runs = {}
    for budget in (None, "36%", "31%"):
        solver = layermem.Solver(SOLVER, budget=budget, host_budget="1MiB")
        solver.step(iterations)
        runs[budget] = solver.parameters()
        report = solver.report
        print(f"budget {budget}: {report.peak_bytes:,} bytes, and {report.offloaded_bytes:,} on the host", end="; ")
        print(f"loss {solver.outputs['loss']:.6f} after {solver.iteration} iterations")
        solver.close()
    first, *others = runs.values()
    equal = all(a.tobytes() == b.tobytes() for run in others for name in first for a, b in zip(run[name], first[name]))
    print("weights are equal, bit by bit" if equal else "weights differ")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
