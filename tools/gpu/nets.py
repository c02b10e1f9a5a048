"""Whole nets: milliseconds per iteration and bytes of the GPU under several budgets, compared with PyTorch's methods.

Budgets are planned first with the model of the GPU, then with the measured times of the net's ops if the step `ops` has
left them.  layermem's steps copy their batch to the GPU; PyTorch is timed with and without that.

Every net also runs in fp32, and on tensor cores without warpgroups.  The loss of the first step, which depends on all
forward ops, must be near that of fp32, and with and without warpgroups nearly the same.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from layermem.api import job_of
from layermem.backends.cuda import CudaDevice
from layermem.graph.net import Net
from layermem.planning.job import Job
from layermem.report.plan_report import evaluate
from layermem.solver.benchmark import Benchmark
from layermem.solver.build import reported
from tools.cpu.description import describe
from tools.gpu import process
from tools.gpu.quarantine import FIRST_SUSPECT as WARPGROUPS
from tools.gpu.quarantine import WITHOUT
from tools.gpu.results import Options, Results, Row, times
from tools.gpu.whole_nets import MOST, Wanted, wanted, warm_up

BUDGETS = ("60%", "40%", "20%")  # shares of the bytes of strategy `caffe`
CAPTURED = ", captured"  # suffix for a CUDA graph
MEASURED = ", measured costs"
TENSOR_CORES = ("tf32", "bf16")  # precisions with which bf16 is also timed
HALF = ", activations in bf16"
NO_WARPGROUPS = f", without {WARPGROUPS}"
FIRST = ("unlimited", f"unlimited{HALF}", f"unlimited{NO_WARPGROUPS}", f"unlimited{HALF}{NO_WARPGROUPS}")
# Relative differences of the loss.  An operand of tf32 is rounded by 2^-11 at most, of bf16 by 2^-8, and the loss is a
# mean over a batch; of ResNet-50 x4 in blobs of bfloat16 on the cpu device it is off by 5e-3.  With and without
# warpgroups operands are rounded alike, and sums of fp32 have another order.
BOUNDS = {"tf32": 1e-3, "bf16": 2e-2}
OTHER_ORDER = 1e-4
PEERS = ("eager", "eager, batch uploaded", "checkpoint", "save_on_cpu")  # most important first
COMPILED = ("compile 0.5", "compile 0.2")  # these take longest to start
PEER_SECONDS = 60


def run(results: Results, options: Options) -> None:
    """For every net, first time layermem without a budget and PyTorch: the minimum that an interrupted call must
    have."""
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
    """A way to run a net; `precision` is the one that rows report."""

    how: str
    budget: str | None
    device: CudaDevice
    job: Job
    precision: str

    def families(self) -> AbstractContextManager[Any]:
        """A context in which it is planned and bound."""
        return patch.dict(os.environ, {WITHOUT: WARPGROUPS}) if NO_WARPGROUPS in self.how else nullcontext()


def ways(each: Wanted, net: Net, options: Options) -> list[Way]:
    """The ways to run a net, most important first."""
    found: list[Way] = []

    def add(device: CudaDevice, job: Job, *budgets: str | None, ending: str = "") -> None:
        found.extend(Way(f"{budget or 'unlimited'}{ending}", budget, device, job, each.precision) for budget in budgets)

    device, again = CudaDevice(precision=each.precision), CudaDevice(precision=each.precision, graph=True)
    job = job_of(net, device=device)
    add(device, job, None)
    add(again, job, None, ending=CAPTURED)
    add(device, job, *BUDGETS)
    if (costly := each.job(net, device, options)) is not None:
        add(device, costly, *BUDGETS, ending=MEASURED)
    if each.precision in TENSOR_CORES:
        wide, narrow = CudaDevice(), CudaDevice(precision="bf16", storage="bf16")
        found.insert(0, Way("unlimited", None, wide, job_of(net, device=wide), wide.precision))
        halved = job_of(net, device=narrow)
        add(narrow, halved, None, *BUDGETS, ending=HALF)
        if not os.environ.get(WITHOUT):
            add(device, job, None, ending=NO_WARPGROUPS)
            add(narrow, halved, None, ending=f"{HALF}{NO_WARPGROUPS}")
    return found


def ours(results: Results, each: Wanted, net: Net, chosen: Collection[str] | None, share: float | None = None) -> None:
    """Time the chosen ways, or all."""
    for way in ways(each, net, results.options):
        if chosen is not None and way.how not in chosen:
            continue
        gc.collect()  # frees the arena of the previous way
        key = {"net": each.title, "precision": way.precision, "who": "layermem", "how": way.how}

        def work(way: Way = way, key: Row = key) -> None:
            with way.families():
                row = one(way.job, way.budget, way.device, results.options)
            results.add(**key, **row, **judged(results.rows, key, row["loss"]))

        results.attempt(work, share, most=60, **key)


def judged(rows: Sequence[Row], key: Row, loss: float) -> Row:
    """Whether the loss is near the fp32 loss and, without warpgroups, near the loss with them, if these exist."""
    losses = {(row["precision"], row["how"]): row["loss"] for row in rows if "loss" in row and row["net"] == key["net"]}
    how = key["how"].removesuffix(NO_WARPGROUPS)
    precision = "bf16" if HALF in how else key["precision"]
    others = [("fp32", "unlimited", BOUNDS.get(precision, 0.0))]
    others += [(key["precision"], how, OTHER_ORDER)] if how != key["how"] else []
    row: Row = {}
    for of, other, bound in others:
        wanted = losses.get((of, other))
        if wanted is None or key["precision"] == "fp32":
            continue
        off = abs(loss - wanted) / abs(wanted)
        row.setdefault("passed", True)
        if not off <= bound:  # also true for NaN
            row |= {"passed": False, "says": f"the loss is {loss:.6g}, and {wanted:.6g} in {of}, {other}"}
    return row


def one(job: Job, budget: str | None, device: CudaDevice, options: Options) -> dict[str, Any]:
    """Time a program for the budget, or for the smallest that fits."""
    found = evaluate(job, None, budget)
    least = not found.feasible
    if least:
        found = evaluate(job, None, found.minimum_bytes)
    program, began = found.feasible_program(), time.perf_counter()
    bench = Benchmark(job.nets[0], program, device)
    ready = time.perf_counter() - began  # most of it pins offloaded buffers
    bench.step()
    loss = loss_of(bench, job.nets[0])
    warm_up(bench, options)
    seconds = [bench.step(number) for number in range(options.rounds // 2)]
    row = {**times(seconds), "bytes": found.peak_bytes, "strategy": found.strategy, "loss": loss}
    row |= {"predicted ms": 1e3 * found.seconds, "host bytes": program.host_bytes, "ready s": ready}
    row["says"] = "the least that fits" if least else ""
    free, total = device.driver.cuda.mem_get_info()
    row["GPU bytes"] = total - free
    return row


def loss_of(bench: Benchmark, net: Net) -> float:
    """The loss of the last step."""
    values = bench.context["results"]
    return float(sum(each.weight * np.sum(values[each.version], dtype=np.float64) for each in reported(net)))


def theirs(results: Results, each: Wanted, net: Net, modes: Sequence[str], share: float | None = None) -> None:
    """Time the net in PyTorch, each mode in its own process."""
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
    """The line of JSON that the process prints, or the reason of its end."""
    code = process.run(command, log, seconds)
    if code is None:
        return {"says": f"took longer than {seconds:.0f} s"}
    if code:
        return {"says": f"ended with {code}: {process.last_lines(log)}"}
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return json.loads(next(line for line in reversed(lines) if line.startswith("{")))
