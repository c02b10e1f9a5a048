"""Trains nets one after the other on one device and prints, as JSON, what each run came to.

    python train.py '[{"net": "chain", "strategy": "hybrid", "steps": 3}, ..]'

A run names a net of tests/nets.py or a solver file, and how many `steps`; what it names beside these goes to Solver.
    fields      of the solver, for a net of tests/nets.py
    labels      least and most of its labels
    missing_wait   number of a row whose waits are left out
    graph       whether the device captures its steps
    precision   of products on device cuda
    storage     of its activations; part_bytes  those of a part of an op
    without     fused ops that the device does not have
    resume      steps after which a snapshot is saved and a new solver goes on from it
    budgets     of the steps, in turn
An answer has the losses, a hash of all parameters, bytes of both arenas and those of the GPU that are taken, the most
of these at the end of an allocation, the graphs that were captured, the rows that wait for other streams, and whether
the context, the streams and the modules of the first step are those of the last.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

from layermem.backends.base import get_device
from layermem.backends.cuda import CudaDevice
from layermem.backends.cuda.driver.context import Driver
from layermem.errors import LayermemError
from layermem.interactive.solver import Solver
from layermem.proto.read import read_solver
from tests.backends.cuda.missing_wait import MissingWaitDevice
from tests.nets import NETS, solver_file

MADE: list[CudaDevice] = []  # devices of one run, which are closed behind it


def run(
    net: str,
    steps: int,
    device: object,
    missing_wait: int | None = None,
    graph: bool = False,
    without: Collection[str] = (),
    resume: int = 0,
    finish: bool = False,
    precision: str = "fp32",
    storage: str = "fp32",
    part_bytes: int | None = None,
    budgets: Sequence[object] = (),
    **options,
) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        fields, (least, most) = options.pop("fields", {}), options.pop("labels", (0, 5))
        if net in NETS:
            text = NETS[net].replace("min: 0 max: 5", f"min: {least} max: {most}")
            file = solver_file(text, Path(folder), **fields)
        else:
            file = read_solver(net)
        file.message.snapshot_prefix = f"{folder}/run"
        if missing_wait is not None:
            device = MissingWaitDevice(missing_wait, graph)
            MADE.append(device)
        elif graph or without or (precision, storage) != ("fp32", "fp32"):
            own = device if isinstance(device, str) else "cuda"
            settings = {"precision": precision, "graph": graph} if own == "cuda" else {}
            device = get_device(own, storage=storage, **settings)
            device.fusions -= set(without)
            if part_bytes is not None:
                device.part_bytes, device.least_parts = part_bytes, 1
            MADE.extend([device] * (own == "cuda"))
        if resume:
            with Solver(file, device=device, **options) as solver:
                solver.step(resume)
                options["snapshot"] = solver.snapshot()
                steps -= resume
        with Solver(file, device=device, **options) as solver:
            losses, most, things = [], [0], []
            if budgets:
                watch(solver.device.driver, most)
            for number in range(steps):
                if budgets:
                    solver.budget = budgets[number % len(budgets)]
                solver.step(1)
                things.append(of_driver(solver.device))
                losses.append(float(solver.loss).hex())
            if finish:
                solver.solve()  # its end: the loss of a last forward pass
                losses.append(float(solver.loss).hex())
            hashed = hashlib.sha256()
            for name, blobs in solver.parameters().items():
                for blob in blobs:
                    hashed.update(name.encode() + blob.tobytes())
            rows = solver.program.train.instructions
            taken = taken_bytes(solver.device.driver) if isinstance(solver.device, CudaDevice) else 0
            return {
                "losses": losses,
                "parameters": hashed.hexdigest(),
                "arena": solver.runner.arena.nbytes,
                "taken": taken,
                "most": most[0],
                "kept": all(each is things[-1][name] for name, each in things[0].items()),
                "host": solver.program.host_bytes,
                "graphs": sum(len(executor.calls.graphs) for executor in solver.runner.executors) if graph else 0,
                "waits": [row.tick for row in rows if row.after],
            }


def taken_bytes(driver: Driver) -> int:
    with driver.current():
        left, total = driver.cuda.mem_get_info()
    return total - left


def watch(driver: Driver, most: list[int]) -> None:
    """Let `most` hold the most bytes that are taken behind an allocation."""
    allocate = driver.allocate

    def allocated(nbytes: int) -> object:
        made = allocate(nbytes)
        most[0] = max(most[0], taken_bytes(driver))
        return made

    driver.allocate = allocated


def of_driver(device: object) -> dict[str, object]:
    """Everything that a plan does not make."""
    if not isinstance(device, CudaDevice):
        return {}
    driver = device.driver
    return {"driver": driver, "context": driver.context, **driver.streams, **driver._modules}


def answer(jobs: list[dict]) -> None:
    device = get_device("cuda")
    answers = []
    for job in jobs:
        try:
            answers.append(run(job.pop("net"), job.pop("steps"), job.pop("device", device), **job))
        except LayermemError as error:
            answers.append({"error": f"{type(error).__name__}: {error}"})
        while MADE:
            MADE.pop().driver.close()
    print(json.dumps(answers))


answer(json.loads(sys.argv[1]))
