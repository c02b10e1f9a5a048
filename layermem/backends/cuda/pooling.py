"""Pooling: one thread a window forward, one a pixel backward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from layermem.backends.cuda.launch import THREADS, Addresses, Launch, ceil_div, divider, kernel, launch, width
from layermem.layers import Tensor


def pool(layer: Any, step: str, written: Tensor, y: int, x: int, argmax: int, accumulate: bool) -> Launch:
    """y has the shape `written`: windows forward, pixels backward."""
    down, right = layer.windows
    _, channels, rows, columns = layer.tops[0].shape
    v = width(channels)
    count = written.count // v
    return launch(
        "pooling", f"pool_{'max' if layer.method == 'MAX' else 'average'}_{step}_v{v}", "PoolArgs",
        ceil_div(count, THREADS), y=y, x=x, argmax=argmax, height=down.size, width=right.size, channels=channels,
        rows=rows, columns=columns, kernel_h=down.kernel, kernel_w=right.kernel, stride_h=down.stride,
        stride_w=right.stride, pad_h=down.pad, pad_w=right.pad, by_runs=divider(channels // v),
        by_columns=divider(written.shape[3]), by_rows=divider(written.shape[2]), by_stride_h=divider(down.stride),
        by_stride_w=divider(right.stride), count=count, wide=down.kernel * right.kernel > 256, accumulate=accumulate,
    )  # fmt: skip


@kernel("Pooling.forward")
def forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield pool(layer, "forward", layer.tops[0], b["y0"], b["x0"], b["argmax"], False)


@kernel("Pooling.backward")
def backward(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield pool(layer, "backward", layer.bottoms[0], b["dx0"], b["dy0"], b["argmax"], b.accumulates("dx0"))
