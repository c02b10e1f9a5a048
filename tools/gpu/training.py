"""Small nets train under every strategy: the same bits under all of them and twice, and the losses of the reference."""

from __future__ import annotations

import hashlib
import math
import tempfile
from pathlib import Path
from typing import Any

from layermem.backends.base import get_device
from layermem.backends.cuda import CudaDevice
from layermem.planning.strategies import STRATEGIES
from layermem.solver.solver import Solver
from tests.nets import NETS, NOT_ON_CUDA, solver_file
from tools.gpu.results import Options, Results, Row

STEPS = 4
BOUND = 1e-5  # relative, of a loss
FEW = ("residual",)


def run(results: Results, options: Options) -> None:
    device, captured = CudaDevice(), CudaDevice(graph=True)
    for net in FEW if options.brief else [net for net in NETS if net not in NOT_ON_CUDA]:
        expected = trained(net, get_device("reference"), "liveness")[0]
        ways = [(name, device) for name in ("liveness", *STRATEGIES)]
        for turn, (name, where) in enumerate((*ways, ("liveness", captured), ("hybrid", captured))):
            key = {
                "net": net,
                "strategy": name,
                "captured": where is captured,
                "turn": turn,
            }  # the first way runs twice

            def work(name: str = name, where: CudaDevice = where, key: Row = key, expected=expected) -> None:
                losses, parameters = trained(key["net"], where, name, poison=name == "auto")
                near = all(math.isclose(a, b, rel_tol=BOUND) for a, b in zip(losses, expected, strict=True))
                same = bits(results, key["net"]) in (None, parameters)
                says = "" if near and same else f"losses {losses}, expected {expected}" if same else "other bits"
                results.add(**key, passed=near and same, parameters=parameters, says=says)

            results.attempt(work, **key)


def bits(results: Results, net: str) -> str | None:
    """The hash of the net's parameters in the first row that has it."""
    return next((row["parameters"] for row in results.rows if row["net"] == net and "parameters" in row), None)


def trained(net: str, device: Any, strategy: str, **settings: Any) -> tuple[list[float], str]:
    """Losses, and a hash of all parameters after them."""
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
