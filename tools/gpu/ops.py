"""Times each op of whole nets, compared with its roofline and its cost in plans; writes costs-NET.csv for `--costs`.

A row has the bytes of the operands, `GB`, and the bytes that the launches move, `GB moved` (tools/traffic.py), the
rates of arithmetic and memory, and the kernels.  The roofline uses operands and the measured ceilings of this or an
earlier call, or without these the rates that plans assume; the last row of a net states which.  If PyTorch is
installed, the times of its layers and kernels for the same net follow, by its profiler.
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
from layermem.backends.cuda.base import cuda_kernels
from layermem.graph.ops import Op
from layermem.ops import NARROW
from layermem.planning.job import Job
from layermem.report.plan_report import evaluate
from layermem.schedule.joined import joined
from layermem.solver.measure import costs_text, measure_step
from tools.cpu.description import describe
from tools.gpu import process
from tools.gpu.gpu import WARM_SECONDS
from tools.gpu.results import Options, Results, Row
from tools.gpu.whole_nets import MOST, Wanted, wanted
from tools.traffic import group_launches

ITERATIONS = 5
PROFILE_SECONDS = 60
ARITHMETIC = {"fp32": "ffma rate", "tf32": "mma tf32 rate", "bf16": "mma bf16 rate"}
COPY = "copy on the GPU"
TF32_PRODUCTS = 3  # products of tf32 in one of fp32x3


class Roofline(NamedTuple):
    """FLOPs and bytes per second that the GPU reaches at best, and whether they were measured."""

    flops: float
    memory: float
    measured: bool

    def seconds(self, op: Op) -> float:
        return max(op.flops / self.flops, op.nbytes / self.memory)


def run(results: Results, options: Options) -> None:
    ceilings = {row["what"]: row["rate"] for row in options.last_rows("ceilings") if "rate" in row}
    for each in wanted(options)[:MOST]:

        def work(each: Wanted = each) -> None:
            device = CudaDevice(precision=each.precision)
            job = job_of(each.build(), device=device)
            measured(results, each, job, device, roofline(ceilings, each.precision, job))

        results.attempt(work, most=120, net=each.title, precision=each.precision)
        gc.collect()
        if not options.small:
            results.attempt(
                lambda each=each: profiled(results, each),
                most=PROFILE_SECONDS + 30,
                net=each.title,
                precision=each.precision,
                who="PyTorch",
            )


def roofline(ceilings: dict[str, float], precision: str, job: Job) -> Roofline:
    rates = job.costs.rates
    arithmetic = ceilings.get(ARITHMETIC.get(precision, ""), rates.flops / 1e12)
    if precision == "fp32x3" and ARITHMETIC["tf32"] in ceilings:
        arithmetic = ceilings[ARITHMETIC["tf32"]] / TF32_PRODUCTS
    measured = ARITHMETIC["tf32" if precision == "fp32x3" else precision] in ceilings and COPY in ceilings
    return Roofline(1e12 * arithmetic, 1e9 * ceilings.get(COPY, rates.memory / 1e9), measured)


def measured(results: Results, each: Wanted, job: Job, device: CudaDevice, best: Roofline) -> None:
    """Add a row for each op, the slowest first, and one for all."""
    small = results.options.small
    step = measure_step(
        job, device, "liveness", iterations=2 if small else ITERATIONS, warm_seconds=0.0 if small else WARM_SECONDS
    )
    text = costs_text(step.job_with_costs())
    results.options.call.keep({each.costs_name: text.encode()})
    moved = moved_by_op(job, each.precision, device.driver.gpu.capability)
    ops = sorted(
        (op for op in job.graphs[0].ops if op.name in step.step), key=lambda op: step.step[op.name], reverse=True
    )
    key = {"net": each.title, "precision": each.precision, "who": "layermem"}
    sums, total_moved = [0.0, 0.0, 0.0], 0
    for op in ops:
        seconds = step.step[op.name], best.seconds(op), job.costs.op(op)
        sums = [total + each for total, each in zip(sums, seconds)]
        row = columns(*seconds) | {"GB": op.nbytes / 1e9, "GFLOP": op.flops / 1e9}
        row["TFLOP/s"] = op.flops / seconds[0] / 1e12
        if op.name in moved:
            nbytes, kernels = moved[op.name]
            total_moved += nbytes
            row |= {"GB moved": nbytes / 1e9, "GB/s moved": nbytes / seconds[0] / 1e9, "kernels": kernels}
        results.add(**key, op=op.name, **row)
    says = "roofline by measured ceilings" if best.measured else "roofline by the rates that plans assume"
    results.add(**key, op=f"all {len(ops)}", **columns(*sums), **{"GB moved": total_moved / 1e9}, says=says)


def moved_by_op(job: Job, precision: str, capability: str) -> dict[str, tuple[int, str]]:
    """Bytes that the launches of an op move, and their kernels; ops that are launched together share them in proportion
    to their operands."""
    schedule = evaluate(job, "liveness").program.train
    dtypes = {name: buffer.tensor.dtype for name, buffer in job.graphs[0].buffers.items()}
    narrow = {name: dtype for name, dtype in dtypes.items() if dtype in NARROW.values()}
    found = {}
    for group in joined(schedule.instructions):
        op = group[0].op
        if op is None or op.part_passes or not cuda_kernels.implements(op.record, op.step):
            continue
        launches, nbytes = group_launches(schedule, group, precision, narrow, capability)
        kernels, ops = " ".join(each.function for each in launches), [each.op for each in group if each.op is not None]
        operands = sum(each.nbytes for each in ops)
        found |= {each.name: (sum(nbytes) * each.nbytes // operands if operands else 0, kernels) for each in ops}
    return found


def columns(spent: float, best: float, modelled: float) -> Row:
    return {
        "ms": 1e3 * spent,
        "roofline ms": 1e3 * best,
        "% of roofline": 100 * best / spent,
        "model ms": 1e3 * modelled,
    }


def profiled(results: Results, each: Wanted) -> None:
    """Add PyTorch's kernels of the same step by time, from a separate process."""
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
