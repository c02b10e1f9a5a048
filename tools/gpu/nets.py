"""Whole nets: milliseconds an iteration and bytes of the card under several budgets, beside PyTorch's ways to save."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from layermem.api import Net, job_of
from layermem.errors import LayermemError
from layermem.measure import Bench
from layermem.planned import Job, planned
from layermem.runtime.cuda import CudaDevice
from tools.bench_cpu import described
from tools.gpu.results import Options, Results

ROOT = Path(__file__).resolve().parents[2]
BUDGETS = (None, "60%", "40%", "20%")  # of what strategy `caffe` takes
CAPTURED = "unlimited, captured"  # as a CUDA graph
PEERS = ("eager", "checkpoint", "compile 0.5", "compile 0.2", "save_on_cpu")
PEER_SECONDS = 60


def run(results: Results, options: Options) -> None:
    precisions = ("fp32",) if options.small else ("tf32",)
    for what in options.nets:
        name, batch = what.split(":")
        stages = ["dummy"] if name != "digits" else []
        net = Net(ROOT / "prototxt" / name / "train_val.prototxt", batch=int(batch), stages=stages)
        for precision in precisions:
            ours(results, what, net, precision)
            if not options.small:
                theirs(results, what, net, precision)


def ours(results: Results, what: str, net: Net, precision: str) -> None:
    device, captured = CudaDevice(precision=precision), CudaDevice(precision=precision, graph=True)
    job = job_of(net, device=device)
    ways = [(budget or "unlimited", budget, device) for budget in BUDGETS]
    for how, budget, device in (*ways[:1], (CAPTURED, None, captured), *ways[1:]):
        if results.late:
            return
        gc.collect()  # the arena of the way before
        row: dict[str, Any] = {"net": what, "precision": precision, "who": "layermem", "how": how}
        try:
            results.add(**row, **one(job, budget, device, results.options))
        except LayermemError as error:
            results.add(**row, says=f"{type(error).__name__}: {error}")


def one(job: Job, budget: str | None, device: CudaDevice, options: Options) -> dict[str, Any]:
    """A program for the budget, or for the least that fits, on the clock."""
    found = planned(job, None, budget)
    least = not found.feasible
    if least:
        found = planned(job, None, found.minimum)
    bench = Bench(job.nets[0], found.program, device)
    measured = bench.steps(options.rounds // 2)
    told = {"ms": 1e3 * measured.seconds, "bytes": found.peak, "strategy": found.strategy}
    told |= {"foretold ms": 1e3 * found.seconds, "host bytes": found.program.host_bytes}
    told["says"] = "the least that fits" if least else ""
    free, total = device.driver.cuda.mem_get_info()
    told["card bytes"] = total - free
    return told


def theirs(results: Results, what: str, net: Net, precision: str) -> None:
    """The same net in PyTorch, every way in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.json"
        path.write_text(json.dumps(described(net)), encoding="utf-8")
        for mode in PEERS:
            if results.late:
                return
            row = {"net": what, "precision": precision, "who": "PyTorch", "how": mode}
            command = [sys.executable, "-m", "tools.gpu.torch_net", str(path), mode, precision]
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, cwd=ROOT, timeout=PEER_SECONDS,
                    env={**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"},
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                results.add(**row, says=f"took longer than {PEER_SECONDS} s")
                continue
            if done.returncode:
                results.add(**row, says=(done.stderr.strip().splitlines() or ["ended without a word"])[-1])
            else:
                results.add(**row, **json.loads(done.stdout.splitlines()[-1]))
