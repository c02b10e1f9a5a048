"""Trains nets by several ranks, threads of this process, each with a device of its own on the one GPU.

    python ranks.py '[{"net": "chain", "size": 2, "transport": "nccl"}, ..]'

A job names a net of tests/nets.py or the text of one, the number of ranks, and
    fields      of the solver
    transport   of the device: mpi (here the loopback), or nccl
    poison      whether freed bytes are NaN; else ranks have a thread of communication
    graph       whether steps are captured
    strategy, budget, host_budget   of the plan
    fail        number of the exchange at which the loopback of the last rank fails
An answer has hashes of all parameters and of the optimizer state of all rows, predicted and measured bytes of both
arenas by rank, and the threads that are left; or the error.
"""

from __future__ import annotations

import gc
import hashlib
import json
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np

from layermem.backends.arena import POISON, UNTOUCHED, WORD_BYTES
from layermem.backends.cuda import CudaDevice
from layermem.distributed.loopback import Loopback, run_ranks
from layermem.distributed.ranks import Ranks
from layermem.errors import DeviceError, LayermemError
from layermem.runtime.runner import Runner
from layermem.schedule.check import check
from layermem.solver.build import build_nets
from layermem.solver.feeds import Feeds
from layermem.solver.jobs import StepOptions, solver_job
from layermem.solver.parameters import Parameters
from layermem.solver.rules import learning_rate, settings
from tests.compiling import compile
from tests.nets import solver_file

MICRO_BATCHES, ITERATIONS = 4, 3


def train(job: dict, ranks: Ranks, device: CudaDevice, transport: Loopback, folder: Path) -> dict:
    file = solver_file(job["net"], folder, iter_size=MICRO_BATCHES, **job.get("fields", {}))
    nets = build_nets(file)
    made = solver_job(file, nets, StepOptions(device=device), ranks).with_host_budget(job.get("host_budget"))
    budget = made.resolve_budget(job.get("budget"))
    program = compile(made.graphs, strategy=job.get("strategy", "liveness"), budget_bytes=budget, hints=made.hints)
    check(*program.schedules)
    context = {**settings(file.message), "seed": 7, "step": 0, "iteration": 0, "rate": 0.0, "transport": transport}
    poison = job.get("poison", False)
    runner = Runner(program, device, context, poison=poison)
    parameters, feeds = Parameters(nets.all, runner, 0), Feeds(nets.all, 7)
    parameters.fill(7)
    host, words = runner.host.bytes, program.host_bytes // WORD_BYTES
    mark = np.uint32(POISON * 0x01010101 if poison else UNTOUCHED)
    free = np.ones(program.host_bytes // WORD_BYTES, bool)  # but for what is there between steps
    for name, offset in program.persistent.host.items():
        free[offset // WORD_BYTES : (offset + sum(b.nbytes for b in runner._bands[name])) // WORD_BYTES] = False
    host.view(np.uint32)[:words][free] = mark
    try:
        for iteration in range(ITERATIONS):
            context["iteration"], context["rate"] = iteration, learning_rate(file.message, iteration)
            batches = [feeds.next(0) for _ in range(ranks.micro_batches)]
            for sub_step in range(ranks.sub_steps):
                micro_batch = ranks.micro_batch(sub_step)
                context["step"], context["batch"] = iteration * ranks.micro_batches + micro_batch, batches[micro_batch]
                runner.run(0)
            if ranks.sub_steps > 1:
                runner.run(1)
        state = [name for name, buffer in runner.persistent.items() if buffer.kind == "history"]
        touched = np.flatnonzero((host.view(np.uint32)[:words] != mark) | ~free)
        return {
            "parameters": {name: runner.read(name) for name in nets.train.params},
            "state": {name: runner.read(name) for name in state},
            "arena": [program.arena_bytes, runner.measured_peak_bytes],
            "host": [program.host_bytes, (int(touched[-1]) // 64 + 1) * 256 if touched.size else 0],
            "nccl": device.nccl_bytes,
            "captured": sum(len(executor.calls.graphs) for executor in runner.executors),
        }
    finally:
        feeds.close()


class Failing(Loopback):
    """A rank whose network fails."""

    def __init__(self, loopback: Loopback, number: int):
        self.__dict__.update(loopback.__dict__)
        self.number = number

    def exchange(self, sends, receives):
        if self._exchanges == self.number:
            raise DeviceError("the network of rank 1 has failed")
        return super().exchange(sends, receives)


def run(job: dict) -> dict:
    size = job["size"]

    def rank(transport: Loopback) -> dict:
        if "fail" in job and transport.rank == size - 1:
            transport = Failing(transport, job["fail"])
        device = CudaDevice(transport=job.get("transport", "mpi"), graph=job.get("graph", False))
        driver = device.driver
        try:
            device.connect(transport)
            with tempfile.TemporaryDirectory() as folder:
                return train(job, Ranks(transport.rank, size, MICRO_BATCHES), device, transport, Path(folder))
        finally:
            if device.nccl is not None:
                device.nccl.close()
            device.__dict__.clear()
            gc.collect()
            driver.close()

    results = run_ranks(size, rank, seed=size)
    for result in results[1:]:
        for name, value in result["parameters"].items():
            assert np.array_equal(value, results[0]["parameters"][name]), name
    names = sorted({name for result in results for name in result["state"]})
    rows = {name: np.concatenate([r["state"][name] for r in results if name in r["state"]]) for name in names}
    return {
        "parameters": hashed(results[0]["parameters"]),
        "state": hashed(rows),
        **{key: [result[key] for result in results] for key in ("arena", "host", "nccl", "captured")},
        "threads": threading.active_count(),
    }


def hashed(arrays: dict) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(name.encode() + arrays[name].tobytes())
    return digest.hexdigest()


def main() -> None:
    answers = []
    for job in json.loads(sys.argv[1]):
        try:
            answers.append(run(job))
        except LayermemError as error:
            answers.append({"error": f"{type(error).__name__}: {error}", "threads": threading.active_count()})
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
