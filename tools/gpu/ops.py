"""Each op of whole nets on the clock, beside its roofline and what plans reckon with; costs-NET.csv for `--costs`.

The roofline takes the ceilings of this call where they were measured, and else the rates that plans assume.  The
PyTorch profiler's view of the same net, its kernels by time, follows where PyTorch is installed.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from layermem.api import job_of
from layermem.backends.cuda import CudaDevice
from layermem.graph.ops import Op
from layermem.job import Job
from layermem.solver.measure import costs_text, measure_step
from tools.cpu.description import describe
from tools.gpu import process
from tools.gpu.results import Options, Results, Row
from tools.gpu.whole_nets import MOST, Wanted, wanted

ITERATIONS = 5
PROFILE_SECONDS = 60
ARITHMETIC = {"fp32": "ffma rate", "tf32": "mma tf32 rate", "bf16": "mma bf16 rate"}
TF32_PRODUCTS = 3  # of which fp32x3 makes one


class Roofline(NamedTuple):
    """FLOPs and bytes a second that the GPU reaches at best."""

    flops: float
    memory: float

    def seconds(self, op: Op) -> float:
        return max(op.flops / self.flops, op.nbytes / self.memory)


def run(results: Results, options: Options) -> None:
    ceilings = {row["what"]: row["rate"] for row in results.others("ceilings") if "rate" in row}
    for each in wanted(options)[:MOST]:

        def work(each: Wanted = each) -> None:
            device = CudaDevice(precision=each.precision)
            job = job_of(each.build(), device=device)
            measured(results, each, job, device, roofline(ceilings, each.precision, job))

        results.attempt(work, most=120, net=each.title, precision=each.precision)
        gc.collect()
        if not options.small:
            results.attempt(
                lambda each=each: profiled(results, each), most=PROFILE_SECONDS + 30, net=each.title,
                precision=each.precision, who="PyTorch",
            )  # fmt: skip


def roofline(ceilings: dict[str, float], precision: str, job: Job) -> Roofline:
    rates = job.costs.rates
    arithmetic = ceilings.get(ARITHMETIC.get(precision, ""), rates.flops / 1e12)
    if precision == "fp32x3" and ARITHMETIC["tf32"] in ceilings:
        arithmetic = ceilings[ARITHMETIC["tf32"]] / TF32_PRODUCTS
    return Roofline(1e12 * arithmetic, 1e9 * ceilings.get("copy on the GPU", rates.memory / 1e9))


def measured(results: Results, each: Wanted, job: Job, device: CudaDevice, best: Roofline) -> None:
    """A row for each op, the slowest first, and one for them all."""
    step = measure_step(job, device, "liveness", iterations=2 if results.options.small else ITERATIONS)
    text = costs_text(step.job_with_costs())
    each.costs_file(results.options).write_text(text, encoding="utf-8")
    ops = sorted(
        (op for op in job.graphs[0].ops if op.name in step.step), key=lambda op: step.step[op.name], reverse=True
    )
    key = {"net": each.title, "precision": each.precision, "who": "layermem"}
    sums = [0.0, 0.0, 0.0]
    for op in ops:
        seconds = step.step[op.name], best.seconds(op), job.costs.op(op)
        sums = [total + each for total, each in zip(sums, seconds)]
        results.add(**key, op=op.name, **columns(*seconds), GB=op.nbytes / 1e9, GFLOP=op.flops / 1e9)
    results.add(**key, op=f"all {len(ops)}", **columns(*sums))


def columns(spent: float, best: float, modelled: float) -> Row:
    return {
        "ms": 1e3 * spent,
        "roofline ms": 1e3 * best,
        "% of roofline": 100 * best / spent,
        "model ms": 1e3 * modelled,
    }


def profiled(results: Results, each: Wanted) -> None:
    """PyTorch's kernels of the same step by time, in a process of their own."""
    with tempfile.TemporaryDirectory() as folder:
        path, log = Path(folder) / "net.json", Path(folder) / "log"
        path.write_text(json.dumps(describe(each.build())), encoding="utf-8")
        command = [sys.executable, "-m", "tools.gpu.torch_profile", str(path), each.precision]
        code = process.run(command, log, min(PROFILE_SECONDS, max(results.left, 10.0)))
        key = {"net": each.title, "precision": each.precision, "who": "PyTorch"}
        if code != 0:
            results.add(**key, op="", says=f"no profile: {process.last_lines(log)}")
            return
        for row in json.loads(process.last_lines(log)):
            results.add(**key, **row)
