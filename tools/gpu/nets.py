"""Whole nets: milliseconds an iteration and bytes of the GPU under several budgets, beside PyTorch's ways to save.

Budgets are planned with the model of the GPU first; then once more with the measured times of the net's ops, where
the step `ops` has left them.  layermem's steps copy their batch to the GPU; PyTorch is timed with and without that.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from layermem.api import job_of
from layermem.backends.cuda import CudaDevice
from layermem.graph.net import Net
from layermem.job import Job
from layermem.report.plan_report import evaluate
from layermem.solver.benchmark import Benchmark
from tools.cpu.description import describe
from tools.gpu import process
from tools.gpu.results import Options, Results, Row, times
from tools.gpu.whole_nets import Wanted, wanted

BUDGETS = (None, "60%", "40%", "20%")  # of what strategy `caffe` takes
CAPTURED = "unlimited, captured"  # as a CUDA graph
MEASURED = ", measured costs"
TENSOR_CORES = ("tf32", "bf16")  # precisions beside which bf16 is timed too
HALF = ", activations in bf16"
PEERS = ("eager", "eager, batch uploaded", "checkpoint", "save_on_cpu")  # in the order of what is worth most
COMPILED = ("compile 0.5", "compile 0.2")  # which take longest to begin
PEER_SECONDS = 60


def run(results: Results, options: Options) -> None:
    nets = wanted(options)
    for number, each in enumerate(nets):
        share = (options.seconds - results.left) + results.left / (len(nets) - number)
        net = each.build()
        ours(results, each, net, share)
        gc.collect()  # the arena of the last way
        if not options.small:
            theirs(results, each, net, PEERS, share)
    for each in nets if not options.small else ():
        theirs(results, each, each.build(), COMPILED, None)


class Way(NamedTuple):
    how: str
    budget: str | None
    device: CudaDevice
    job: Job


def ways(each: Wanted, net: Net, options: Options) -> list[Way]:
    """In the order of what is worth most."""
    device = CudaDevice(precision=each.precision)
    captured = CudaDevice(precision=each.precision, graph=True)
    job = job_of(net, device=device)
    found = [Way(budget or "unlimited", budget, device, job) for budget in BUDGETS]
    found.insert(1, Way(CAPTURED, None, captured, job))
    costs = each.costs_file(options)
    if costs.exists():
        again = job_of(net, device=device, costs=costs)
        found += [Way(f"{budget}{MEASURED}", budget, device, again) for budget in BUDGETS if budget]
    if each.precision in TENSOR_CORES:
        narrow = CudaDevice(precision="bf16", storage="bf16")
        halved = job_of(net, device=narrow)
        found += [Way(f"{budget or 'unlimited'}{HALF}", budget, narrow, halved) for budget in BUDGETS]
    return found


def ours(results: Results, each: Wanted, net: Net, share: float) -> None:
    for how, budget, where, planned in ways(each, net, results.options):
        gc.collect()  # the arena of the way before
        key = {"net": each.title, "precision": each.precision, "who": "layermem", "how": how}

        def work(budget: str | None = budget, where: CudaDevice = where, job: Job = planned, key: Row = key) -> None:
            results.add(**key, **one(job, budget, where, results.options))

        results.attempt(work, share, most=60, **key)


def one(job: Job, budget: str | None, device: CudaDevice, options: Options) -> dict[str, Any]:
    """A program for the budget, or for the least that fits, on the clock."""
    found = evaluate(job, None, budget)
    least = not found.feasible
    if least:
        found = evaluate(job, None, found.minimum_bytes)
    program, began = found.feasible_program(), time.perf_counter()
    bench = Benchmark(job.nets[0], program, device)
    ready = time.perf_counter() - began  # most of it: to pin what is offloaded
    seconds = [bench.step(number) for number in range(1 + options.rounds // 2)][1:]
    row = {**times(seconds), "bytes": found.peak_bytes, "strategy": found.strategy}
    row |= {"predicted ms": 1e3 * found.seconds, "host bytes": program.host_bytes, "ready s": ready}
    row["says"] = "the least that fits" if least else ""
    free, total = device.driver.cuda.mem_get_info()
    row["GPU bytes"] = total - free
    return row


def theirs(results: Results, each: Wanted, net: Net, modes: tuple[str, ...], share: float | None) -> None:
    """The same net in PyTorch, every way in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.json"
        path.write_text(json.dumps(describe(net)), encoding="utf-8")
        for mode in modes:
            key = {"net": each.title, "precision": each.precision, "who": "PyTorch", "how": mode}
            log = Path(folder) / f"{mode.split()[0]}.log"

            def work(mode: str = mode, log: Path = log, key: Row = key) -> None:
                command = [sys.executable, "-m", "tools.gpu.torch_net", str(path), mode, each.precision]
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
