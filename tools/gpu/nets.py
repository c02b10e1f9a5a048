"""Whole nets: milliseconds an iteration and bytes of the GPU under several budgets, beside PyTorch's ways to save."""

from __future__ import annotations

import gc
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from layermem.api import build_net, job_of
from layermem.backends.cuda import CudaDevice
from layermem.graph.net import Net
from layermem.job import Job
from layermem.report.plan_report import evaluate
from layermem.solver.benchmark import Benchmark
from tools.cpu.description import describe
from tools.gpu import process
from tools.gpu.process import ROOT
from tools.gpu.results import Options, Results, Row

BUDGETS = (None, "60%", "40%", "20%")  # of what strategy `caffe` takes
CAPTURED = "unlimited, captured"  # as a CUDA graph
PEERS = ("eager", "checkpoint", "compile 0.5", "save_on_cpu", "compile 0.2")  # in the order of what is worth most
PEER_SECONDS = 60


def run(results: Results, options: Options) -> None:
    precision = "fp32" if options.small else "tf32"
    for number, what in enumerate(options.nets):
        share = (options.seconds - results.left) + results.left / (len(options.nets) - number)
        name, batch = what.split(":")
        stages = ["dummy"] if name != "digits" else []
        net = build_net(ROOT / "prototxt" / name / "train_val.prototxt", batch=int(batch), stages=stages)
        ours(results, what, net, precision, share)
        gc.collect()  # the arena of the last way
        if not options.small:
            theirs(results, what, net, precision, share)


def ours(results: Results, what: str, net: Net, precision: str, share: float) -> None:
    device, captured = CudaDevice(precision=precision), CudaDevice(precision=precision, graph=True)
    job = job_of(net, device=device)
    ways = [(budget or "unlimited", budget, device) for budget in BUDGETS]
    for how, budget, where in (*ways[:1], (CAPTURED, None, captured), *ways[1:]):
        gc.collect()  # the arena of the way before
        key = {"net": what, "precision": precision, "who": "layermem", "how": how}

        def work(budget: str | None = budget, where: CudaDevice = where, key: Row = key) -> None:
            results.add(**key, **one(job, budget, where, results.options))

        results.attempt(work, share, most=60, **key)


def one(job: Job, budget: str | None, device: CudaDevice, options: Options) -> dict[str, Any]:
    """A program for the budget, or for the least that fits, on the clock."""
    found = evaluate(job, None, budget)
    least = not found.feasible
    if least:
        found = evaluate(job, None, found.minimum_bytes)
    bench = Benchmark(job.nets[0], found.program, device)
    measured = bench.steps(options.rounds // 2)
    row = {"ms": 1e3 * measured.seconds, "bytes": found.peak_bytes, "strategy": found.strategy}
    row |= {"predicted ms": 1e3 * found.seconds, "host bytes": found.program.host_bytes}
    row["says"] = "the least that fits" if least else ""
    free, total = device.driver.cuda.mem_get_info()
    row["GPU bytes"] = total - free
    return row


def theirs(results: Results, what: str, net: Net, precision: str, share: float) -> None:
    """The same net in PyTorch, every way in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.json"
        path.write_text(json.dumps(describe(net)), encoding="utf-8")
        for mode in PEERS:
            key = {"net": what, "precision": precision, "who": "PyTorch", "how": mode}
            log = Path(folder) / f"{mode.split()[0]}.log"

            def work(mode: str = mode, log: Path = log, key: Row = key) -> None:
                command = [sys.executable, "-m", "tools.gpu.torch_net", str(path), mode, precision]
                results.add(**key, **peer(command, log, min(PEER_SECONDS, max(results.left, 10.0))))

            results.attempt(work, share, most=PEER_SECONDS + 30, **key)


def peer(command: list[str], log: Path, seconds: float) -> Row:
    """The line of JSON that the process prints, or what it says of its end."""
    code = process.run(command, log, seconds)
    if code is None:
        return {"says": f"took longer than {seconds:.0f} s"}
    if code:
        return {"says": f"ended with {code}: {process.last_lines(log)}"}
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return json.loads(next(line for line in reversed(lines) if line.startswith("{")))
