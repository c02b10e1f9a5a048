"""Im2col: one thread per element of the blob that is written."""

from __future__ import annotations

from collections.abc import Iterator

from layermem.backends.cuda.base import CudaCall, kernel
from layermem.backends.cuda.launch import THREADS, Launch, ceil_div, divider, launch
from layermem.ops import Im2col, Tensor


def im2col(op: Im2col, step: str, written: Tensor, y: int, x: int, accumulate: bool) -> Launch:
    _, channels, height, width = op.x.shape
    _, _, out_h, out_w = op.y.shape
    rows, columns = op.rows, op.columns
    return launch(
        "im2col", f"im2col_{step}", "Im2colArgs", ceil_div(written.count, THREADS), y=y, x=x, height=height,
        width=width, channels=channels, rows=out_h, columns=out_w, kernel_h=rows.kernel, kernel_w=columns.kernel,
        stride_h=rows.stride, stride_w=columns.stride, pad_h=rows.pad, pad_w=columns.pad, dilation_h=rows.dilation,
        dilation_w=columns.dilation, by_channels=divider(written.shape[1]), by_columns=divider(written.shape[3]),
        by_rows=divider(written.shape[2]), by_taps=divider(op.taps), by_kernel_w=divider(columns.kernel),
        by_stride_h=divider(rows.stride), by_stride_w=divider(columns.stride), count=written.count,
        accumulate=accumulate,
    )  # fmt: skip


@kernel(Im2col, "forward")
def im2col_forward(op: Im2col, call: CudaCall) -> Iterator[Launch]:
    yield im2col(op, "forward", op.y, call["y0"], call["x0"], False)


@kernel(Im2col, "backward")
def im2col_backward(op: Im2col, call: CudaCall) -> Iterator[Launch]:
    yield im2col(op, "backward", op.x, call["dx0"], call["dy0"], call.accumulates("dx0"))
