"""Nets that train on the fake driver, and comparisons of what they compute."""

from __future__ import annotations

import math
from pathlib import Path

from tests.emulator import fake_driver
from tests.nets import solver_text

DIGITS = Path("prototxt/digits").resolve()
LAZY = [order for order in fake_driver.STREAMS if order != "eager"]
RULES = {  # fields of the solver, by net
    "chain": {"clip_gradients": 0.3, "iter_size": 2, "type": "Adam", "base_lr": 0.002},
    "shared": {"type": "Nesterov"},
    "dropout": {"type": "RMSProp", "base_lr": 0.002},
    "others": {"base_lr": 0.0005},
}


def solver_of(folder: Path, net: str, **fields: object) -> Path:
    """The file of a solver over a net, without tests of it."""
    file = folder / "solver.prototxt"
    file.write_text(solver_text(**{"test_iter": None, "test_interval": None, **fields}) + f"net_param {{ {net} }}\n")
    return file


def losses(answer: dict) -> list[float]:
    assert "error" not in answer, answer
    return [float.fromhex(loss) for loss in answer["losses"]]


def same_numbers(a: dict, b: dict, bound: float) -> None:
    for x, y in zip(losses(a), losses(b), strict=True):
        assert math.isclose(x, y, rel_tol=bound), (x, y)
