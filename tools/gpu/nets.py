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
from collections.abc import Collection, Sequence
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
from tools.gpu.whole_nets import MOST, Wanted, wanted, warm_up

BUDGETS = (None, "60%", "40%", "20%")  # of what strategy `caffe` takes
CAPTURED = "unlimited, captured"  # as a CUDA graph
MEASURED = ", measured costs"
TENSOR_CORES = ("tf32", "bf16")  # precisions beside which bf16 is timed too
HALF = ", activations in bf16"
FIRST = ("unlimited", f"unlimited{HALF}")
PEERS = ("eager", "eager, batch uploaded", "checkpoint", "save_on_cpu")  # in the order of what is worth most
COMPILED = ("compile 0.5", "compile 0.2")  # which take longest to begin
PEER_SECONDS = 60


def run(results: Results, options: Options) -> None:
    """Of every net first what it takes without a budget, beside PyTorch: what a call that is cut short has to have."""
    nets = {each: each.build() for each in wanted(options)}
    beside = {} if options.small else nets
    for each, net in [*nets.items()][:MOST]:
        ours(results, each, net, FIRST)
    for each, net in [*beside.items()][:MOST]:
        theirs(results, each, net, PEERS[:1])
    for number, (each, net) in enumerate(nets.items()):
        share = (options.seconds - results.left) + results.left / (len(nets) - number)
        ours(results, each, net, None, share)
        if beside:
            theirs(results, each, net, PEERS, share)
    for each, net in beside.items():
        theirs(results, each, net, COMPILED)


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
    again = each.job(net, device, options)
    if again is not None:
        found += [Way(f"{budget}{MEASURED}", budget, device, again) for budget in BUDGETS if budget]
    if each.precision in TENSOR_CORES:
        narrow = CudaDevice(precision="bf16", storage="bf16")
        halved = job_of(net, device=narrow)
        found += [Way(f"{budget or 'unlimited'}{HALF}", budget, narrow, halved) for budget in BUDGETS]
    return found


def ours(
    results: Results, each: Wanted, net: Net, chosen: Collection[str] | None, share: float | None = None
) -> None:  # fmt: skip
    """Those of the ways that are chosen, or all."""
    for how, budget, where, planned in ways(each, net, results.options):
        if chosen is not None and how not in chosen:
            continue
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
    warm_up(bench, options)
    seconds = [bench.step(number) for number in range(options.rounds // 2)]
    row = {**times(seconds), "bytes": found.peak_bytes, "strategy": found.strategy}
    row |= {"predicted ms": 1e3 * found.seconds, "host bytes": program.host_bytes, "ready s": ready}
    row["says"] = "the least that fits" if least else ""
    free, total = device.driver.cuda.mem_get_info()
    row["GPU bytes"] = total - free
    return row


def theirs(results: Results, each: Wanted, net: Net, modes: Sequence[str], share: float | None = None) -> None:
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
