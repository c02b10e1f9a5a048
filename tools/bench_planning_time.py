"""Planning time of every net in prototxt/, with the peak and overhead of its plan.

    python tools/bench_planning_time.py                             every net, strategy liveness
    python tools/bench_planning_time.py --strategy auto --budget 30% resnet50 vgg16
    python tools/bench_planning_time.py --strategy liveness,hybrid,sublinear --device cuda

Seconds are of reading the net, of building its graph, and of the plan with placement and check.  Nothing is run.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from layermem.api import build_net, default_device
from layermem.backends.base import get_device
from layermem.errors import BudgetError
from layermem.planning.costs import model_costs
from layermem.planning.pipeline import Compiler
from layermem.report.tables import print_table
from layermem.solver.jobs import StepOptions, net_job
from layermem.utils.units import format_bytes, format_change

PROTOTXT = Path(__file__).resolve().parent.parent / "prototxt"
HEADINGS = [
    "net",
    "strategy",
    ">net s",
    ">graph s",
    ">plan s",
    ">ticks",
    ">peak",
    ">of caffe",
    ">fragmentation",
    ">overhead",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", help="folders below prototxt/ (all)")
    parser.add_argument("--strategy", default="liveness", help="names, commas between (liveness)")
    parser.add_argument("--budget", help="bytes, 2GiB, or 30%% of strategy caffe")
    parser.add_argument("--device", default=default_device())
    args = parser.parse_args()
    paths = [path for path in nets() if not args.nets or path.parent.name in args.nets]
    rows = [row(path, strategy, args) for path in paths for strategy in args.strategy.split(",")]
    print_table(HEADINGS, rows)


def nets() -> list[Path]:
    return sorted(PROTOTXT.glob("*/*train_val.prototxt"))


def row(path: Path, strategy: str, args: argparse.Namespace) -> list[str]:
    began = time.perf_counter()
    net = build_net(path)
    read = time.perf_counter()
    job = net_job(net, StepOptions(device=get_device(args.device), costs=model_costs(args.device)))
    job = job.with_host_budget("1TiB")
    built = time.perf_counter()
    name = path.parent.name + path.name.removesuffix("train_val.prototxt").rstrip("_")
    times = [f"{read - began:.2f}", f"{built - read:.2f}"]
    try:
        program = Compiler(job.arena, strategy, job.hints).compile(job.resolve_budget(args.budget))
    except BudgetError as error:
        minimum = f"> {format_bytes(error.minimum_bytes)}"
        return [name, strategy, *times, f"{time.perf_counter() - built:.2f}", "", minimum, "", "", ""]
    times.append(f"{time.perf_counter() - built:.2f}")
    overhead = program.seconds / job.baseline_seconds - 1
    peak_bytes = program.arena_bytes
    return [
        name,
        strategy,
        *times,
        str(len(program.train.instructions)),
        format_bytes(peak_bytes),
        f"{peak_bytes / job.baseline_bytes:.1%}",
        format_bytes(peak_bytes - program.max_live_bytes) if peak_bytes > program.max_live_bytes else "",
        format_change(overhead),
    ]


if __name__ == "__main__":
    main()
