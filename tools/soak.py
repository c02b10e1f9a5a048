"""Trains the digits for many iterations in one process, whose memory and open files must not grow.

    python tools/soak.py [--iterations 20000] [--every 500] [--warm-up 2000]

The net of prototxt/digits trains in 30 % of the memory of strategy `caffe` with a spill file, as `make train` does.  It
is tested every TEST iterations and saved every SNAPSHOT.  A table shows the resident set (VmRSS) and the open file
descriptors of the process at intervals.

findings   more open file descriptors than in the first sample after the warm-up
           a resident set that is larger by more than GROWTH than in that sample
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from layermem.interactive.solver import Solver
from layermem.proto.read import read_solver_text

NET = Path(__file__).resolve().parents[1] / "prototxt" / "digits" / "train_val.prototxt"
TEST, SNAPSHOT = 250, 1000  # iterations
GROWTH = 2 << 20  # bytes of the resident set


@dataclass(frozen=True)
class Sample:
    """Memory and open files of the process after an iteration."""

    iteration: int
    resident_bytes: int
    open_files: int

    @staticmethod
    def take(iteration: int) -> Sample:
        [line] = [x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmRSS:")]
        return Sample(iteration, 1024 * int(line.split()[1]), len([*Path("/proc/self/fd").iterdir()]))

    def __str__(self) -> str:
        return f"{self.iteration:>10,}  {self.resident_bytes / 2**20:>10.2f}  {self.open_files:>10}"


def train(iterations: int, every: int, folder: Path) -> Iterator[Sample]:
    """Train, and yield a sample every `every` iterations."""
    text = (
        f'net: "{NET}"\nbase_lr: 0.01 lr_policy: "fixed" momentum: 0.9 weight_decay: 0.0005 random_seed: 1\n'
        f"max_iter: {iterations} test_iter: 6 test_interval: {TEST} snapshot: {SNAPSHOT}\n"
        f'snapshot_prefix: "{folder}/digits"\n'
    )
    file = read_solver_text(text, str(folder / "solver.prototxt"))
    with Solver(file, device="cpu", budget="30%", spill=folder) as solver:
        while solver.iteration < iterations:
            solver.step(min(every, iterations - solver.iteration))
            yield Sample.take(solver.iteration)


def findings(samples: Sequence[Sample], warm_up: int) -> list[str]:
    """Growth since the first sample after the warm-up."""
    first, *rest = [sample for sample in samples if sample.iteration >= warm_up]
    faults = []
    for sample in rest:
        grown = sample.resident_bytes - first.resident_bytes
        since = f"at iteration {sample.iteration:,} than at {first.iteration:,}"
        if grown > GROWTH:
            faults.append(f"the resident set is {grown:,} bytes larger {since}")
        if sample.open_files > first.open_files:
            faults.append(f"{sample.open_files - first.open_files} more file descriptors are open {since}")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=20_000, help="how many (20000)")
    parser.add_argument("--every", type=int, default=500, metavar="N", help="iterations between samples (500)")
    parser.add_argument("--warm-up", type=int, default=2000, metavar="N", help="iterations before the first (2000)")
    options = parser.parse_args()
    if options.every < 1 or options.warm_up + options.every > options.iterations:
        parser.error("give at least as many --iterations as --warm-up and --every together, which is at least 1")
    samples = []
    print(f"{'iteration':>10}  {'VmRSS, MiB':>10}  {'open files':>10}", flush=True)
    with tempfile.TemporaryDirectory(prefix="layermem-") as folder:
        for sample in train(options.iterations, options.every, Path(folder)):
            samples.append(sample)
            print(sample, flush=True)
    faults = findings(samples, options.warm_up)
    for fault in faults:
        print(f"FOUND  {fault}")
    print(f"soak: {options.iterations:,} iterations, {len(faults)} findings")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
