"""Plans nets within many budgets and counts those at which more bytes give a slower step.  It only plans.

    python tools/steady_plans.py "densenet121 x16" "unet x8" --device cpu --device cuda
    python tools/steady_plans.py "vgg16 x16" --slices auto --device cuda --step 0.02 --count 60

Budgets begin at the least bytes of the strategy, and each is --step percent of these above the one before.  A row of
the printed table is a net: its least bytes; at how many budgets the step is slower than at fewer bytes, by more than
0.1 point of the overhead over the baseline; by how many points at most; and the CPU seconds of all plans.  A row has
its own cache of plans, which is empty at first; with --alone there is none.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from layermem.report.plan_report import evaluate
from tools.bench_plans import MIB, StepRow

POINTS = 0.1  # of the overhead: smaller differences are of no account


def overheads(row: StepRow, step: float, count: int) -> tuple[int, list[tuple[int, float]]]:
    """The least bytes of a row's strategy, and (budget, overhead in percent) of each budget from there on."""
    strategy, job = row.settings["strategy"] or "auto", row.job
    least_bytes = evaluate(job, strategy, 1).minimum_bytes
    found = []
    for number in range(count):
        budget_bytes = least_bytes + int(least_bytes * step / 100 * number)
        report = evaluate(job, strategy, budget_bytes)
        if report.feasible:  # in slices, the least budget may be that of other slices
            found.append((budget_bytes, 100 * report.seconds / job.baseline_seconds - 100))
    return least_bytes, found


def slower_steps(points: Sequence[float]) -> list[float]:
    """By how many points the overhead is above the least one before it, where that is notable."""
    least, above = float("inf"), []
    for point in points:
        if point > least + POINTS:
            above.append(point - least)
        least = min(least, point)
    return above


def cpu_seconds() -> float:
    """Seconds of this process and of its copies (utils/parallel.py)."""
    return sum(os.times()[:4])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="+", metavar="NET", help='a folder of prototxt/ and a batch: "resnet50 x32"')
    parser.add_argument("--device", action="append", help="cpu or cuda; both if given twice (default: cpu)")
    parser.add_argument("--link", default="", help="GB/s of the link to the host, or none")
    parser.add_argument("--slices", default="off", help="as of layermem plan")
    parser.add_argument("--split-weights", default="", help="as of layermem plan")
    parser.add_argument("--step", type=float, action="append", help="percent between budgets (default: 0.5)")
    parser.add_argument("--count", type=int, default=120, help="budgets of each net (default: %(default)s)")
    parser.add_argument("--alone", action="store_true", help="keep no plan from one budget to the next")
    parser.add_argument("--out", type=Path, help="a CSV file to which all budgets are added")
    options = parser.parse_args()
    print(
        "| net | device | slices | split weights | step | least, MiB | slower | by at most | CPU seconds |", flush=True
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for net in options.nets:
        for device in options.device or ["cpu"]:
            settings = {"net": net, "device": device, "slices": options.slices, "link": options.link}
            settings["split-weights"] = options.split_weights
            for step in options.step or [0.5]:
                began = cpu_seconds()
                with tempfile.TemporaryDirectory() as folder:
                    os.environ["LAYERMEM_CACHE"] = os.devnull if options.alone else folder
                    least_bytes, found = overheads(StepRow(settings), step, options.count)
                seconds = cpu_seconds() - began
                above = slower_steps([point for _, point in found])
                cells = (
                    net,
                    device,
                    options.slices,
                    options.split_weights,
                    f"{step:g} %",
                    f"{least_bytes / MIB:,.0f}",
                    f"{len(above)}/{len(found)}",
                )
                print(f"| {' | '.join(cells)} | {max(above, default=0):.1f} | {seconds:.0f} |", flush=True)
                if options.out is not None:
                    with options.out.open("a", newline="") as file:
                        csv.writer(file).writerows(
                            (net, device, options.slices, options.split_weights, step, *each) for each in found
                        )


if __name__ == "__main__":
    main()
