"""The minimum memory of every strategy on every net, beside published results.  Plans only; nothing runs.

    python tools/bench_strategies.py [--out docs/benchmarks/strategies.md] [--quick]

Prints markdown tables: the seven nets of Kusumoto et al. at the paper's batch sizes, Layrub's nets, its deepest nets
within 12 GiB, the result of SINGA, ResNets of growing depth, and fragmentation.  Peaks include parameters, gradients,
momentum, input, activations and workspace.  Reductions are against strategy `caffe` on the same net.

Device `cpu` computes in the host's memory, where offloading frees nothing: its plans offload nothing.  Strategies that
offload are planned for device `cuda`, with the bytes that they hold on the host beside those on the device.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from layermem.backends.base import get_device
from layermem.data import probe
from layermem.errors import BudgetError
from layermem.graph.net import Net, NetOptions
from layermem.graph.ops import Graph
from layermem.graph.train import Rule, train_graph
from layermem.planning.costs import model_costs
from layermem.planning.hints import Hints
from layermem.planning.job import Job
from layermem.planning.pipeline import compile
from layermem.proto.read import read_net
from layermem.report.plan_report import evaluate
from layermem.schedule.program import Program
from layermem.solver.jobs import StepOptions, net_job
from layermem.utils.units import format_change

NETS = Path(__file__).resolve().parents[1] / "prototxt"
# net, batch, the best reduction in the paper (%), relative to its own baseline
PAPER = [
    ("pspnet", 2, 71),
    ("unet", 8, 48),
    ("resnet50", 96, 62),
    ("resnet152", 48, 75),
    ("vgg19", 64, 36),
    ("densenet161", 32, 81),
    ("googlenet", 256, 39),
]
LAYRUB = [
    ("alexnet", 256),
    ("vgg16", 64),
    ("vgg16", 256),
    ("googlenet", 32),
    ("resnet50", 32),
    ("resnet101", 32),
    ("resnet152", 32),
    ("resnet1001", 32),
    ("resnet1517", 32),
    ("resnet1517", 16),
]
DEEP = [("resnet1517", 16), ("resnet1517", 32), ("resnet2504", 16)]
BUDGET_BYTES = 12 * 2**30  # of the GPU on which Layrub and its successor report their deepest nets
DEPTHS = [("resnet50", 32), ("resnet101", 32), ("resnet152", 32), ("resnet1001", 32)]
WITHOUT_HOST = [
    "caffe",
    "liveness",
    "intra",
    "sublinear",
    "recompute-approx",
    "recompute",
    "recompute-exact",
    "nested",
    "auto",
]
OFFLOADING = ["vdnn-conv", "vdnn-all", "inter", "hybrid", "auto"]
NO_HOST = Hints(host_budget_bytes=0)


MODELLED = (
    "**Times on `cuda` are modelled, an upper bound on speed**: CUDA has not yet run on a GPU, and one is expected to "
    "take 1.25 to\n1.6 times as long ([cuda.md](cuda.md#modelled-times), [published.md](published.md))."
)


def machine() -> str:
    """Date, processor and Python version of a table."""
    try:
        words = (line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
        model = next(value.strip() for name, value in words if name.strip() == "model name")
    except (OSError, StopIteration):
        model = platform.machine()
    return f"{datetime.date.today()} ({os.cpu_count()} cores, {model}; Python {platform.python_version()})"


def graph_of(name: str, batch: int, device: str = "cpu") -> tuple[Net, Graph]:
    net = Net(read_net(NETS / name / "train_val.prototxt"), 0, NetOptions(batch=batch), probe=probe)
    return net, train_graph(net, get_device(device), Rule("SGD", 1))


def job_of(name: str, batch: int, device: str = "cpu", hints: Hints = Hints()) -> Job:
    net = Net(read_net(NETS / name / "train_val.prototxt"), 0, NetOptions(batch=batch), probe=probe)
    return net_job(net, StepOptions(device=device, hints=hints))


def measure_minimum(job: Job, strategy: str) -> tuple[int, int, int, float]:
    """(peak, fragmentation, host bytes, seconds of planning) of `strategy` at its minimum."""
    start = time.perf_counter()
    program = smallest_program(job, strategy)
    return program.arena_bytes, program.train.fragmentation_bytes, program.host_bytes, time.perf_counter() - start


def smallest_program(job: Job, strategy: str) -> Program:
    if strategy == "caffe":
        return evaluate(job, strategy).program
    smallest = evaluate(job, strategy, 1)
    if strategy not in ("auto", "nested"):
        return smallest.minimum_program
    return evaluate(job, strategy, smallest.minimum_bytes).program


def mib(count: int) -> str:
    return f"{count / 2**20:,.0f}"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    head = list(head)
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def kusumoto(strategies: list[str], wasted: list[list[str]]) -> Iterator[str]:
    yield "## The seven nets of Kusumoto et al. (NeurIPS 2019): peak in MiB, reduction against `caffe`\n"
    yield "Nothing is offloaded; device cpu.\n"
    rows = []
    for name, batch, paper in PAPER:
        job = job_of(name, batch)
        cells = _minimum_cells(f"{name} x{batch}", job, strategies, wasted)
        rows.append([f"{name} x{batch}", mib(job.bvlc_bytes), *cells, f"-{paper} %"])
    yield from table(["net", "BVLC Caffe", *strategies, "paper's best"], rows)
    yield "With offloading, device cuda: MiB on the device + MiB on the host, reduction on the device.\n"
    rows = []
    for name, batch, _ in PAPER:
        job = job_of(name, batch, "cuda")
        rows.append([f"{name} x{batch}", *_minimum_cells(f"{name} x{batch}", job, ["caffe", *OFFLOADING], wasted)])
    yield from table(["net", "caffe", *OFFLOADING], rows)


def _minimum_cells(title: str, job: Job, strategies: Iterable[str], wasted: list[list[str]]) -> list[str]:
    """ "738 + 12,341 (-94.8 %)" for each strategy; the first one is `caffe`, which the others are compared with."""
    cells, base = list[str](), 0
    for strategy in strategies:
        peak_bytes, gap_bytes, host_bytes, seconds = measure_minimum(job, strategy)
        base = base or peak_bytes
        host = f" + {mib(host_bytes)}" if host_bytes else ""
        less = f" (-{100 - 100 * peak_bytes / base:.1f} %)" if strategy != "caffe" else ""
        cells.append(f"{mib(peak_bytes)}{host}{less}")
        if gap_bytes:
            share = f"{100 * gap_bytes / (peak_bytes - gap_bytes):.2f} %"
            wasted.append([title, strategy, mib(gap_bytes), share, f"{seconds:.1f}"])
        print(f"{title} {strategy} on {job.graphs[0].device}: {cells[-1]}, {seconds:.1f} s", file=sys.stderr)
    return cells


def layrub(wasted: list[list[str]]) -> Iterator[str]:
    yield "## Layrub's nets: `hybrid` on device cuda (published: -58.2 % on average, -98.9 % at best)\n"
    rows, total = [], 0.0
    for name, batch in LAYRUB:
        job = job_of(name, batch, "cuda")
        own, base = job.bvlc_bytes, job.baseline_bytes
        peak_bytes, gap_bytes, host, _ = measure_minimum(job, "hybrid")
        saved = 100 - 100 * peak_bytes / base
        total += saved
        rows.append(
            [
                f"{name} x{batch}",
                mib(own),
                mib(base),
                mib(peak_bytes),
                mib(host),
                f"-{saved:.2f} %",
                f"-{100 - 100 * peak_bytes / own:.2f} %",
            ]
        )
        if gap_bytes:
            wasted.append(
                [
                    f"{name} x{batch}",
                    "hybrid",
                    mib(gap_bytes),
                    f"{100 * gap_bytes / (peak_bytes - gap_bytes):.2f} %",
                    "",
                ]
            )
        print(f"{name} x{batch} done", file=sys.stderr)
    rows.append(["average", "", "", "", "", f"-{total / len(LAYRUB):.2f} %", ""])
    yield from table(
        ["net", "BVLC Caffe", "`caffe`", "`hybrid`", "host", "against `caffe`", "against BVLC Caffe"], rows
    )


def deep() -> Iterator[str]:
    yield "## The deepest nets of Layrub (1,517 layers) and its successor (2,504 at batch 16), inside 12 GiB\n"
    yield "Device cuda; the last row of each net offloads nothing.\n"
    rows = []
    for name, batch in DEEP:
        _, graph = graph_of(name, batch, "cuda")
        base = sum(model_costs("cuda").op(op) for op in graph.ops)
        for strategy, hints in (("hybrid", Hints()), ("auto", Hints()), ("recompute", NO_HOST), ("auto", NO_HOST)):
            start = time.perf_counter()
            try:
                program = compile([graph], strategy=strategy, budget_bytes=BUDGET_BYTES, hints=hints)
            except BudgetError as error:
                rows.append([f"{name} x{batch}", strategy, f"needs {mib(error.minimum_bytes)}", "", "", ""])
                continue
            took, over = time.perf_counter() - start, program.seconds / base - 1
            places = [mib(program.arena_bytes), mib(program.host_bytes)]
            rows.append([f"{name} x{batch}", strategy, *places, format_change(over), f"{took:.0f}"])
        print(f"{name} x{batch} done", file=sys.stderr)
    yield from table(["net", "strategy", "peak, MiB", "host, MiB", "predicted overhead", "seconds of planning"], rows)


def singa() -> Iterator[str]:
    yield "## `liveness` on ResNet-50 (published for SINGA's graph mode: 32 to 37 % less)\n"
    rows = []
    for batch in (16, 32, 64, 96):
        job = job_of("resnet50", batch)
        base, peak_bytes = (measure_minimum(job, strategy)[0] for strategy in ("caffe", "liveness"))
        rows.append([f"resnet50 x{batch}", mib(base), mib(peak_bytes), f"-{100 - 100 * peak_bytes / base:.1f} %"])
    yield from table(["net", "caffe", "liveness", "less"], rows)


def depth() -> Iterator[str]:
    yield "## Growing depth: `sublinear` (published: a 1,000-layer ResNet from 48 GB to 7 GB)\n"
    rows = []
    for name, batch in DEPTHS:
        job = job_of(name, batch)
        row = [f"{name} x{batch}"]
        for strategy in ("caffe", "liveness", "sublinear", "recompute"):
            row.append(mib(measure_minimum(job, strategy)[0]))
        rows.append(row)
        print(f"{name} done", file=sys.stderr)
    yield from table(["net", "caffe", "liveness", "sublinear", "recompute"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="also write the tables to a file")
    parser.add_argument("--quick", action="store_true", help="skip nets of a thousand layers and recompute-exact")
    options = parser.parse_args()
    strategies = list(WITHOUT_HOST)
    if options.quick:
        strategies.remove("recompute-exact")
        LAYRUB[:] = [item for item in LAYRUB if item[0] not in ("resnet1001", "resnet1517")]
        DEEP.clear()
        DEPTHS.pop()
    lines = [
        "# Strategies: memory of a training step",
        "",
        f"Made by `python tools/bench_strategies.py` on {machine()}.  SGD with momentum; every schedule was "
        "checked.  A peak is the minimum of the strategy.",
        "",
    ]
    wasted: list[list[str]] = []
    lines += [*kusumoto(strategies, wasted), *layrub(wasted), *deep(), *singa(), *depth()]
    lines += ["## Fragmentation", ""]
    if wasted:
        lines += table(["net", "strategy", "MiB above", "share", "seconds of planning"], wasted)
    else:
        lines.append("None: every peak above equals its peak live bytes.\n")
    text = "\n".join(lines)
    print(text)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text)


if __name__ == "__main__":
    main()
