"""Training steps in slices of the batch on the cpu device, beside the same steps without: seconds, measured.

    python tools/bench_slices_cpu.py                                  # the rows of docs/benchmarks/slices.md
    python tools/bench_slices_cpu.py --row googlenet:32:whole/8 --steps 14
    python tools/bench_slices_cpu.py --row alexnet:64:whole/4 --ops   # which ops take the difference

Strategy `intra`, without a budget.  The steps of a row run in turns in one process, without slices and with, after one
of each that does not count.  Nor do steps during which other processes took over 10 % of a core, unless all are such;
where there are some, more are run, up to three times as many.  --ops times each op alone instead, in as many steps, and
shows the fastest run of each: the time of an op in slices is the sum over its slices, and the ops that take most longer
come first.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from layermem.api import build_net, job_of
from layermem.backends.cpu import CpuDevice
from layermem.graph.slices import whole_name
from layermem.report.plan_report import evaluate
from layermem.solver.benchmark import Benchmark
from layermem.utils.units import format_change
from tools.bench_strategies import NETS, mib, table
from tools.cpu.disturbance import run_in_turns

ROWS = ["vgg16:8:conv1_1..pool2/2", "googlenet:32:whole/4", "googlenet:32:whole/8", "alexnet:64:whole/4"]
HEAD = [
    "net",
    "slices",
    "images of a slice",
    "peak, MiB",
    "median",
    "minimum",
    "without slices: peak",
    "median",
    "minimum",
    "steps that count",
]


class Row:
    """A net without slices and with, ready to run."""

    def __init__(self, what: str, device: CpuDevice):
        self.name, batch, self.slices = what.split(":")
        self.batch = int(batch)
        net = build_net(NETS / self.name / "train_val.prototxt", batch=self.batch, stages=["dummy"])
        job = job_of(net, device="cpu")
        reports = [evaluate(each, "intra") for each in (job, job.with_slices(self.slices))]
        self.benches = [Benchmark(net, report.program, device) for report in reports]

    def steps(self, count: int) -> list[str]:
        """Cells of the table of steps."""
        for bench in self.benches:
            bench.step()
        whole, sliced = run_in_turns([bench.step for bench in self.benches], count)
        peaks = [mib(bench.runner.measured_peak_bytes) for bench in self.benches]
        cells = []
        for of in (median, min):
            spent, base = of(sliced), of(whole)
            cells.append((f"{spent:.3f} ({format_change(spent / base - 1)})", f"{base:.3f}"))
        images = self.batch // int(self.slices.rpartition("/")[2])
        sliced_cells, whole_cells = zip(*cells)
        return [
            f"{self.name} x{self.batch}",
            self.slices,
            str(images),
            peaks[1],
            *sliced_cells,
            peaks[0],
            *whole_cells,
            f"{len(sliced)}, {len(whole)}",
        ]

    def ops(self, count: int, most: int) -> Iterator[list[str]]:
        """Cells of the table of ops."""
        rounds = [[bench.ops(1) for bench in self.benches] for _ in range(count)]
        whole, parts = ({name: min(each[name] for each in of) for name in of[0]} for of in zip(*rounds))
        sliced: dict[str, float] = defaultdict(float)
        for name, seconds in parts.items():
            sliced[whole_name(name)] += seconds
        longer = {name: sliced[name] - whole.get(name, 0.0) for name in sorted({*whole, *sliced})}
        shown = sorted(longer, key=lambda name: -longer[name])[:most]
        yield ["all", *(f"{1e3 * sum(each.values()):.1f}" for each in (whole, sliced, longer))]
        for name in shown:
            yield [name, *(f"{1e3 * each.get(name, 0.0):.2f}" for each in (whole, sliced, longer))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", action="append", metavar="NET:BATCH:SLICES", help="a row (may be repeated)")
    parser.add_argument("--steps", type=int, default=14, help="of each, those that count (14)")
    parser.add_argument("--threads", type=int, default=2, help="threads (2)")
    parser.add_argument("--ops", action="store_true", help="time ops instead of steps")
    parser.add_argument("--most", type=int, default=40, help="ops that are listed (40)")
    options = parser.parse_args()
    device, rows = CpuDevice(options.threads), options.row or ROWS
    if not options.ops:
        for line in table(HEAD, (Row(row, device).steps(options.steps) for row in rows)):
            print(line, flush=True)  # as soon as it is measured
        return
    for row in rows:
        print(row)
        print(
            "\n".join(
                table(["op", "without, ms", "in slices", "longer"], Row(row, device).ops(options.steps, options.most))
            )
        )


if __name__ == "__main__":
    main()
