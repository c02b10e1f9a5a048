"""Fill: buffers that start as a constant, as the gradient of a loss and gradients that are accumulated into."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from layermem.backends.cuda.launch import Addresses, Launch, ceil_div, kernel, launch


def fill(y: int, count: int, value: float) -> Launch:
    return launch("fill", "fill", "FillArgs", ceil_div(count, 1024), y=y, count=count, value=value)


@kernel("Fill.seed")
def seed(loss_weight: float, b: Addresses) -> Iterator[Launch]:
    yield fill(b["y0"], b.count("y0"), loss_weight)


@kernel("Fill.zero")
def zero(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield fill(b["y0"], b.count("y0"), 0.0)
