"""Activations in 16 bits beside activations in fp32: bytes, predicted times, and steps measured on the cpu device.

    python tools/bench_storage.py [--out docs/benchmarks/storage.md] [--only vgg16] [--measure]
    python tools/bench_storage.py --products         the section on precisions of products alone
    python tools/bench_storage.py --steps            the section of steps measured on the cpu device alone

Plans are for device cuda, by the model of its costs, and for cpu.  On cuda products are in tf32, of blobs in bfloat16
in bf16.  Overheads are predicted, against the step in fp32 that keeps everything.  --measure also runs steps of both in
turns, on the cpu device.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench_strategies import MODELLED, NETS, machine, mib, table

from layermem import api
from layermem.backends.base import STORAGES, get_device
from layermem.planning.job import Job
from layermem.proto.read import read_solver
from layermem.report.plan_report import evaluate
from layermem.solver.solver import Solver
from layermem.utils.units import format_change

CASES = [("resnet50", 128), ("vgg16", 64), ("googlenet", 256), ("unet", 8)]
SHARES = (60, 40, 20)  # % of what strategy caffe takes in fp32
STEPS = [("googlenet", 32), ("resnet50", 8), ("alexnet", 64), ("vgg16", 8)]
PRODUCTS = (("tf32", "fp32"), ("bf16", "fp32"), ("tf32", "bf16"), ("bf16", "bf16"))  # precision, storage
ROUNDS = 6  # steps of each that are timed, after one that is not
DEVICES = {"cuda": {"fp32": "tf32", "bf16": "bf16", "fp16": "tf32"}, "cpu": {}}  # precision of products by storage


def job_of(net: str, batch: int, device: str, storage: str, precision: str = "") -> Job:
    precision = precision or DEVICES[device].get(storage, "")
    target = get_device(device, storage=storage, **({"precision": precision} if precision else {}))
    return api.job_of(NETS / net / "train_val.prototxt", device=target, batch=batch)


def peaks(only: str) -> Iterator[str]:
    yield "## Peaks, MiB, and the seconds of all ops, ms\n"
    rows = []
    for device in DEVICES:
        for net, batch in CASES:
            jobs = [job_of(net, batch, device, storage) for storage in STORAGES if only in net]
            for job in jobs:
                seconds = sum(job.costs.op(op) for op in job.graphs[0].ops)
                row = [mib(evaluate(job, name).peak_bytes) for name in ("caffe", "intra")]
                row.append(mib(evaluate(job, "auto").minimum_bytes))
                rows.append([f"{net} x{batch}", device, job.graphs[0].storage, *row, f"{1e3 * seconds:,.0f}"])
                print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    yield from table(["net", "device", "storage", "caffe", "intra", "least of auto", "ops"], rows)


def precisions(only: str) -> Iterator[str]:
    yield "## Products in tf32 and in bf16 on cuda\n"
    yield "Seconds of all ops in ms (predicted) by precision of products and storage of blobs; MiB of `intra`.\n"
    rows = []
    for net, batch in CASES:
        if only not in net:
            continue
        row = [f"{net} x{batch}"]
        for precision, storage in PRODUCTS:
            job = job_of(net, batch, "cuda", storage, precision)
            row.append(f"{1e3 * sum(map(job.costs.op, job.graphs[0].ops)):,.1f}")
        rows.append([*row, mib(evaluate(job, "intra").peak_bytes)])
        print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    yield from table(["net", *(" on ".join(each) for each in PRODUCTS), "intra, last"], rows)


def under_budgets(only: str) -> Iterator[str]:
    yield "## Strategy `auto` under a share of what `caffe` takes in fp32\n"
    rows = []
    for device in DEVICES:
        for net, batch in CASES:
            if only not in net:
                continue
            base = job_of(net, batch, device, "fp32")
            for share in SHARES:
                budget = base.baseline_bytes * share // 100
                row = [f"{net} x{batch}", device, f"{share} %", mib(budget)]
                for storage in STORAGES:
                    report = evaluate(job_of(net, batch, device, storage), "auto", budget)
                    relative = report.seconds / base.baseline_seconds - 1
                    row.append(format_change(relative) if report.feasible else f"needs {mib(report.minimum_bytes)}")
                rows.append(row)
                print(" | ".join(row), file=sys.stderr, flush=True)
    yield from table(["net", "device", "budget", "MiB", *STORAGES], rows)


def measured(only: str) -> Iterator[str]:
    yield "## Measured on the cpu device\n"
    yield f"Strategy `intra`, {ROUNDS} steps of each in turns: seconds a step, median and minimum.\n"
    rows = []
    for net, batch in STEPS:
        if only not in net:
            continue
        file = read_solver(NETS / net / "solver_dummy.prototxt")
        solvers = [
            Solver(file, device=get_device("cpu", storage=storage), strategy="intra", batch=batch, data="noise:3")
            for storage in STORAGES
        ]
        seconds: list[list[float]] = [[] for _ in solvers]
        for round_ in range(ROUNDS + 1):
            for solver, times in zip(solvers, seconds):
                began = time.perf_counter()
                solver.step(1)
                if round_:
                    times.append(time.perf_counter() - began)
        base = seconds[0]
        for storage, solver, times in zip(STORAGES, solvers, seconds):
            middle, least = statistics.median(times), min(times)
            cells = [
                f"{middle:.2f} ({format_change(middle / statistics.median(base) - 1)})",
                f"{least:.2f} ({format_change(least / min(base) - 1)})",
            ]
            rows.append([f"{net} x{batch}", storage, mib(solver.runner.measured_peak_bytes), *cells])
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
        for solver in solvers:
            solver.close()
    yield from table(["net", "storage", "measured peak, MiB", "median", "minimum"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="", help="nets with this in their name")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--products", action="store_true", help="the section on precisions of products alone")
    parser.add_argument("--steps", action="store_true", help="the section of measured steps alone")
    arguments = parser.parse_args()
    if arguments.products:
        print("\n".join(precisions(arguments.only)))
        return
    if arguments.steps:
        print("\n".join(measured(arguments.only)))
        return
    lines = [
        "# Activations in 16 bits: bytes and times\n",
        f"Made by `python tools/bench_storage.py` on {machine()}.",
        "Plans only, but for the last section, by the model of costs of each device; products on cuda are in tf32, of",
        "blobs in bfloat16 in bf16. SGD with momentum.\n",
        f"{MODELLED}\n",
        *peaks(arguments.only),
        *precisions(arguments.only),
        *under_budgets(arguments.only),
        *(measured(arguments.only) if arguments.measure else ()),
    ]
    text = "\n".join(lines).rstrip() + "\n"
    if arguments.out is not None:
        arguments.out.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
