"""Pooling: one thread per window and V channels forward, one per pixel and V channels backward."""

from __future__ import annotations

from collections.abc import Iterator

from layermem.backends.cuda.base import CudaCall, kernel
from layermem.backends.cuda.launch import THREADS, Launch, ceil_div, divider, launch, vector_width
from layermem.ops import Pool, Tensor

NARROW_TAPS = 256  # that an index of one byte tells apart


@kernel(Pool, "forward")
def pool_forward(op: Pool, call: CudaCall) -> Iterator[Launch]:
    yield pool(op, "forward", op.y, call["y0"], call["x0"], call["argmax"], False)


@kernel(Pool, "backward")
def pool_backward(op: Pool, call: CudaCall) -> Iterator[Launch]:
    yield pool(op, "backward", op.x, call["dx0"], call["dy0"], call["argmax"], call.accumulates("dx0"))


def pool(op: Pool, step: str, written: Tensor, y: int, x: int, argmax: int, accumulate: bool) -> Launch:
    """y has the shape `written`: windows forward, pixels backward."""
    rows, columns = op.windows
    _, channels, out_h, out_w = op.y.shape
    v = vector_width(channels)
    count = written.count // v
    return launch(
        "pooling", f"pool_{'max' if op.method == 'MAX' else 'average'}_{step}_v{v}", "PoolArgs",
        ceil_div(count, THREADS), y=y, x=x, argmax=argmax, height=rows.size, width=columns.size, channels=channels,
        rows=out_h, columns=out_w, kernel_h=rows.kernel, kernel_w=columns.kernel, stride_h=rows.stride,
        stride_w=columns.stride, pad_h=rows.pad, pad_w=columns.pad, by_runs=divider(channels // v),
        by_columns=divider(written.shape[3]), by_rows=divider(written.shape[2]), by_stride_h=divider(rows.stride),
        by_stride_w=divider(columns.stride), count=count, wide=op.taps > NARROW_TAPS, accumulate=accumulate,
    )  # fmt: skip
