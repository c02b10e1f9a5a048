"""Trains small nets under every strategy, and under some in tf32: all must give the same bits, also when repeated, and
the losses of the reference."""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from layermem.backends.base import get_device
from layermem.backends.cuda import CudaDevice
from layermem.backends.cuda.driver.context import gpus
from layermem.interactive.solver import Solver
from layermem.planning.strategies import STRATEGIES
from tests.nets import NETS, NOT_ON_CUDA, solver_file
from tools.gpu.results import Options, Results, Row

STEPS = 4
# Relative bounds of a loss: tf32 rounds operands by 2^-11 in each product of each step.
BOUNDS = {"fp32": 1e-5, "tf32": 1e-2}
BRIEF_NETS = ("residual",)


def run(results: Results, options: Options) -> None:
    precisions = list(BOUNDS) if int(gpus()[0].capability) >= 80 else ["fp32"]
    devices = {each: (CudaDevice(precision=each), CudaDevice(precision=each, graph=True)) for each in precisions}
    for net in BRIEF_NETS if options.brief else [net for net in NETS if net not in NOT_ON_CUDA]:
        expected = trained(net, get_device("reference"), "liveness")[0]
        for precision, (device, captured) in devices.items():
            strategies = STRATEGIES if precision == "fp32" else ["liveness", "auto"]
            ways = [(name, device) for name in ("liveness", *strategies)]  # the first way runs twice
            for turn, (name, where) in enumerate((*ways, ("liveness", captured), ("hybrid", captured))):
                key = {"net": net, "precision": precision, "strategy": name, "captured": where is captured}
                work = partial(compared, results, key | {"turn": turn}, where, expected)
                results.attempt(work, **key, turn=turn)


def compared(results: Results, key: Row, device: CudaDevice, expected: Sequence[float]) -> None:
    losses, parameters = trained(key["net"], device, key["strategy"], poison=key["strategy"] == "auto")
    bound = BOUNDS[key["precision"]]
    near = all(math.isclose(a, b, rel_tol=bound) for a, b in zip(losses, expected, strict=True))
    others = (
        row["parameters"]
        for row in results.rows
        if "parameters" in row and (row["net"], row["precision"]) == (key["net"], key["precision"])
    )
    same = next(others, parameters) == parameters
    says = "" if near and same else f"losses {losses}, expected {expected}" if same else "other bits"
    results.add(**key, passed=near and same, parameters=parameters, says=says)


def trained(net: str, device: Any, strategy: str, **settings: Any) -> tuple[list[float], str]:
    """Losses, and a hash of all parameters after training."""
    with tempfile.TemporaryDirectory() as folder:
        file = solver_file(NETS[net], Path(folder))
        with Solver(file, device=device, strategy=strategy, **settings) as solver:
            losses = []
            for _ in range(STEPS):
                solver.step(1)
                losses.append(solver.loss)
            hashed = hashlib.sha256()
            for blobs in solver.parameters().values():
                for blob in blobs:
                    hashed.update(blob.tobytes())
            return losses, hashed.hexdigest()
