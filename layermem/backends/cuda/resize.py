"""Interp: one thread a pixel of the grid that is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from layermem.backends.cuda.launch import THREADS, Addresses, Launch, ceil_div, divider, kernel, launch, width
from layermem.errors import InputError
from layermem.layers import Tensor

MOST_PIXELS = 1 << 15  # of an axis: the product of two sizes must stay below 2^31


def interp(layer: Any, step: str, written: Tensor, y: int, x: int, accumulate: bool) -> Launch:
    _, channels, height, columns = layer.bottoms[0].shape
    if max(height, columns, *layer.tops[0].shape[2:]) > MOST_PIXELS:
        raise InputError(f"resizes an image of more than {MOST_PIXELS} pixels along an axis; crop it first")
    v = width(channels)
    count = written.count // v
    return launch(
        "resize", f"interp_{step}_v{v}", "InterpArgs", ceil_div(count, THREADS), y=y, x=x, rows=vars(layer.rows),
        columns=vars(layer.columns), height=height, width=columns, channels=channels, by_runs=divider(channels // v),
        by_columns=divider(written.shape[3]), by_rows=divider(written.shape[2]), count=count, accumulate=accumulate,
    )  # fmt: skip


@kernel("Interp.forward")
def forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield interp(layer, "forward", layer.tops[0], b["y0"], b["x0"], False)


@kernel("Interp.backward")
def backward(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield interp(layer, "backward", layer.bottoms[0], b["dx0"], b["dy0"], b.accumulates("dx0"))
