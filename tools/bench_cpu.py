"""A training step of whole nets on the cpu device beside PyTorch and BVLC Caffe: seconds, and peak resident bytes.

    python tools/bench_cpu.py                                    # AlexNet x64, GoogLeNet x32, ResNet-50 x16, VGG-16 x8
    python tools/bench_cpu.py --net resnet50:8 --rounds 9 --out docs/benchmarks/cpu.md
    python tools/bench_cpu.py --net alexnet:64 --profile         # time by kind of op

Every contestant is a process that builds its net and then waits; they run one step each in turns, so that a change in
the machine's speed affects all of them.  Times are medians; ratios are layermem / peer (below 1: layermem is faster);
bytes are the peak resident set of the process (VmHWM, with interpreter and libraries).  All train on one batch of noise
in memory, with momentum and a learning rate of 0, so that no run diverges.

    layermem     strategy liveness, without a budget
    layermem 40% strategy auto in 40 % of strategy caffe: without offloading if that fits, else with it (host and device
                 share the same memory here), else at the minimum
    PyTorch      NCHW, channels_last, and channels_last with checkpointing (torch_peer.py; --torch-python names a
                 Python with PyTorch; without one these rows are omitted)
    Caffe        if a `caffe` binary is on the path; it reports its own times, after the others
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from layermem import ops
from layermem.api import Net, job_of
from layermem.backends.cpu import CpuDevice
from layermem.graph.net import Node
from layermem.ops import Window
from layermem.planning.hints import Hints
from layermem.report.plan_report import PlanReport, evaluate
from layermem.solver.benchmark import Benchmark
from layermem.utils.units import format_bytes
from tools.bench_strategies import table

ROOT = Path(__file__).resolve().parents[1]
NETS = ["alexnet:64", "googlenet:32", "resnet50:16", "vgg16:8"]
OURS = {"layermem": None, "layermem 40%": "40%"}
PEERS = {"PyTorch NCHW": "nchw", "PyTorch channels_last": "channels_last", "PyTorch checkpoint": "checkpoint"}
CAFFE_LINE = re.compile(r"Average Forward-Backward: ([\d.]+) ms")


def net_of(what: str) -> Net:
    name, batch = what.split(":")
    return Net(ROOT / "prototxt" / name / "train_val.prototxt", batch=int(batch), stages=["dummy"])


# -- layermem: a process that runs a step per request ------------------------------------------------------------------


def program_of(net: Net, budget: str | None) -> PlanReport:
    """`net` under `budget`, without offloading if that fits; at the minimum if nothing fits."""
    if budget is None:
        return evaluate(job_of(net, device="cpu"))
    report = evaluate(job_of(net, device="cpu", hints=Hints(host_budget_bytes=0)), None, budget)
    if not report.feasible:
        report = evaluate(job_of(net, device="cpu").with_host_budget("1TiB"), None, budget)
    return report if report.feasible else evaluate(report.job, None, report.minimum_bytes)


def serve(what: str, contestant: str, threads: int) -> None:
    """Report readiness, then run a step for each line on stdin; all output is lines of JSON."""
    net = net_of(what)
    device = CpuDevice(threads)
    report = program_of(net, OURS[contestant])
    bench = Benchmark(net, report.program, device)
    bench.step()
    share = report.peak_bytes / report.job.baseline_bytes
    host = report.program.host_bytes
    write_line(
        parameters=net.parameter_count, arena=report.peak_bytes, host=host, share=share, **{"is": device.describe()}
    )
    for _ in sys.stdin:
        write_line(seconds=bench.step(), bytes=peak_bytes())


def write_line(**values: Any) -> None:
    print(json.dumps(values), flush=True)


def peak_bytes() -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def profile(what: str, threads: int, steps: int) -> None:
    """Time by kind of op, largest first."""
    net = net_of(what)
    report = program_of(net, None)
    seconds = Benchmark(net, report.program, CpuDevice(threads)).ops(steps)
    sums: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0, 0])
    for op in report.job.graphs[0].ops:
        each = [1, seconds.get(op.name, 0.0), op.flops, op.nbytes]
        sums[op.kernel] = [a + b for a, b in zip(sums[op.kernel], each)]
    print(f"{what}: {1e3 * sum(s[1] for s in sums.values()):.0f} ms in {len(report.job.graphs[0].ops)} ops")
    for kernel, (count, spent, flops, nbytes) in sorted(sums.items(), key=lambda item: -item[1][1]):
        rates = f"{flops / spent / 1e9:6.0f} GFLOP/s {nbytes / spent / 1e9:6.1f} GB/s" if spent else ""
        print(f"  {kernel:<34} {count:4.0f} ops {1e3 * spent:8.2f} ms {rates}")


# -- peers -------------------------------------------------------------------------------------------------------------


def describe(net: Net) -> dict[str, Any]:
    """The net in the form that torch_peer.py reads."""
    feed = net.nodes[0]
    layers = [describe_layer(node) for node in net.nodes[1:]]
    classes = next(layer["classes"] for layer in layers if "classes" in layer)
    return {"data": feed.layer.tops[0].shape, "classes": classes, "layers": layers}


def describe_layer(node: Node) -> dict[str, Any]:
    layer, record = node.layer, node.layer.record
    values: dict[str, Any] = {"name": layer.name, "type": layer.type, "bottoms": node.bottoms, "tops": node.tops}
    if isinstance(record, ops.Conv):
        problem = record.problem
        values |= describe_windows(problem.rows, problem.columns)
        values |= {"channels": problem.c, "outputs": problem.k, "group": problem.groups, "bias": record.bias}
        values["dilation"] = [problem.rows.dilation, problem.columns.dilation]
    elif isinstance(record, ops.Pool):
        values |= {**describe_windows(record.rows, record.columns), "method": record.method}
    elif isinstance(record, ops.InnerProduct):
        values |= {"inputs": record.inner, "outputs": record.outputs, "bias": record.bias}
    elif isinstance(record, ops.BatchNorm):
        values |= {"channels": record.x.shape[1], "eps": record.eps, "fraction": record.fraction}
    elif isinstance(record, ops.LRN):
        values |= {"size": record.size, "alpha": record.alpha * record.size, "beta": record.beta, "shift": record.k}
    elif isinstance(record, ops.Dropout):
        values["ratio"] = 1 - 1 / record.scale
    elif layer.type == "SoftmaxWithLoss":
        values |= {"weight": node.loss_weights[0], "classes": layer.bottoms[0].shape[1]}
    return values


def describe_windows(*windows: Window) -> dict[str, list[int]]:
    return {name: [getattr(window, name) for window in windows] for name in ("kernel", "stride", "pad")}


class Contestant:
    """A process that has built its net and runs a step per request."""

    def __init__(self, name: str, command: list[str], threads: int):
        self.name = name
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, bufsize=1
        )
        self.about = self._answer()
        self.seconds: list[float] = []
        self.bytes = 0

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended with status {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def step(self, counts: bool) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("step\n")
        answer = self._answer()
        if counts:
            self.seconds.append(answer["seconds"])
        self.bytes = answer["bytes"]

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def contestants(what: str, options: argparse.Namespace, folder: Path) -> Iterator[Contestant]:
    net = net_of(what)
    path = folder / f"{what.replace(':', '_')}.json"
    path.write_text(json.dumps(describe(net)), encoding="utf-8")
    threads = ["--threads", str(options.threads)]
    here = str(Path(__file__).resolve())
    for name in OURS:
        if options.only is None or name in options.only:
            yield Contestant(name, [sys.executable, here, "--serve", what, name, *threads], options.threads)
    for name, mode in PEERS.items():
        if options.torch_python and (options.only is None or name in options.only):
            script = str(Path(here).with_name("torch_peer.py"))
            command = [options.torch_python, script, str(path), "--mode", mode, *threads]
            yield Contestant(name, command, options.threads)


def caffe(what: str, rounds: int, threads: int, folder: Path) -> tuple[float, int] | None:
    """Seconds (forward and backward, without the update) and bytes of BVLC Caffe on the same net."""
    binary = shutil.which("caffe")
    if binary is None:
        return None
    model, log = folder / "caffe.prototxt", folder / "caffe.log"
    model.write_text(str(net_of(what).message), encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    with log.open("wb") as file:
        command = [binary, "time", f"-model={model}", f"-iterations={rounds}", "-phase=TRAIN"]
        process = subprocess.Popen(command, stderr=file, stdout=file, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
    match = CAFFE_LINE.search(log.read_text(errors="replace"))
    if status or not match:
        print(f"caffe failed on {what}: {log.read_text(errors='replace')[-400:]}", file=sys.stderr)
        return None
    return float(match.group(1)) / 1e3, usage.ru_maxrss * 1024


# -- tables ------------------------------------------------------------------------------------------------------------


def race(what: str, options: argparse.Namespace, folder: Path) -> Iterator[str]:
    """Run all contestants on one net, step by step in turns."""
    entered = []
    for each in contestants(what, options, folder):
        entered.append(each)
        print(f"{what}: {each.name}: {each.about}", file=sys.stderr)
    counts = {each.about["parameters"] for each in entered}
    if len(counts) > 1:
        raise SystemExit(f"{what}: the nets differ: {counts} parameters")
    for turn in range(1 + options.rounds):
        for each in entered:
            each.step(counts=turn > 0)
    for each in entered:
        each.end()
    ours = next((statistics.median(e.seconds) for e in entered if e.name in OURS), 0.0)
    rows = [result(e.name, statistics.median(e.seconds), min(e.seconds), e.bytes, ours, e.about) for e in entered]
    if timed := caffe(what, options.rounds, options.threads, folder):
        rows.append(result("BVLC Caffe", timed[0], timed[0], timed[1], ours, {}))
    yield f"## {what.replace(':', ' x')}\n"
    yield from table(["", "s a step (median)", "least", "ours / it", "peak resident MiB", ""], rows)


def result(name: str, median: float, least: float, nbytes: int, ours: float, about: dict[str, Any]) -> list[str]:
    note = ""
    if "arena" in about:
        note = f"arena {format_bytes(about['arena'])}, {100 * about['share']:.0f} % of `caffe`"
        if about["host"]:
            note += f"; host {format_bytes(about['host'])}"
    ratio = f"{ours / median:.2f}" if ours and name not in OURS else f"{median / ours:.2f} of unlimited"
    return [name, f"{median:.3f}", f"{least:.3f}", ratio, f"{nbytes / 2**20:,.0f}", note]


def cpu_name() -> str:
    with open("/proc/cpuinfo", encoding="ascii") as file:
        models = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    return f"{models[0]}, {len(models)} cores" if models else platform.processor()


def python_with_torch() -> str | None:
    probe = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, check=False)
    return sys.executable if probe.returncode == 0 else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", action="append", help="NAME:BATCH of prototxt/ (may be repeated)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5, help="timed steps of each contestant (5)")
    parser.add_argument("--only", action="append", help="only this contestant, by its name in the table")
    parser.add_argument("--torch-python", default=python_with_torch(), help="a Python that has PyTorch (this one)")
    parser.add_argument("--profile", action="store_true", help="only print the time of layermem by kind of op")
    parser.add_argument("--out", type=Path, help="also write the tables to a file")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(*options.serve, options.threads)
    nets = options.net or NETS
    if options.profile:
        for what in nets:
            profile(what, options.threads, options.rounds)
        return None
    began = time.time()
    lines = [f"{cpu_name()}; {options.threads} threads; {datetime.date.today()}; {platform.system()}", ""]
    with tempfile.TemporaryDirectory() as folder:
        for what in nets:
            block = list(race(what, options, Path(folder)))
            print("\n".join(block), flush=True)
            lines += block
    print(f"{time.time() - began:.0f} s in all", file=sys.stderr)
    if options.out:
        options.out.write_text("\n".join(lines), encoding="utf-8")
    return None


if __name__ == "__main__":
    main()
