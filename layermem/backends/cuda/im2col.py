"""Im2col: one thread per written element; one launch per tap of the outer axes."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from layermem.backends.cuda.base import FLOAT, CudaCall, kernel
from layermem.backends.cuda.fill import fill
from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, divider, launch
from layermem.ops import Fill, Im2col, Tensor
from layermem.ops.frames import FrameRun, frame_runs, unreached_frames


def im2col(op: Im2col, step: str, run: FrameRun, y: int, x: int, accumulate: bool) -> Launch:
    """Launch the copies of one tap of the outer axes, between the frames of `run`; y and x as in the kernel."""
    _, channels, height, width = op.x.shape
    _, _, out_h, out_w = op.y.shape
    rows, columns, images = op.rows, op.columns, run.count * op.items
    written = (images, channels * op.image_taps, out_h, out_w) if step == "forward" else (images, *op.x.shape[1:])
    count = prod(written)
    return launch(
        "im2col",
        f"im2col_{step}",
        "Im2colArgs",
        ceil_div(count, THREADS),
        y=y,
        x=x,
        height=height,
        width=width,
        channels=channels,
        rows=out_h,
        columns=out_w,
        kernel_h=rows.kernel,
        kernel_w=columns.kernel,
        stride_h=rows.stride,
        stride_w=columns.stride,
        pad_h=rows.pad,
        pad_w=columns.pad,
        dilation_h=rows.dilation,
        dilation_w=columns.dilation,
        by_channels=divider(written[1]),
        by_columns=divider(written[3]),
        by_rows=divider(written[2]),
        by_taps=divider(op.image_taps),
        by_kernel_w=divider(columns.kernel),
        by_stride_h=divider(rows.stride),
        by_stride_w=divider(columns.stride),
        taps=op.taps,
        first_tap=run.tap * op.image_taps,
        count=count,
        accumulate=accumulate,
    )


def at(address: int, frame: int, op: Im2col, side: Tensor) -> int:
    """The address of a frame of x or y."""
    return address + FLOAT * frame * op.items * (side.count // side.shape[0])


@kernel(Im2col, "forward")
def im2col_forward(op: Im2col, call: CudaCall) -> Iterator[Launch]:
    if any(window.pad for window in op.outer):
        yield from fill(Fill(0.0), CudaCall({"y0": call["y0"]}, {"y0": op.y.count}))
    for run in frame_runs(op.outer, "taps"):
        y, x = at(call["y0"], run.maps, op, op.y), at(call["x0"], run.image, op, op.x)
        yield im2col(op, "forward", run, y, x, False)


@kernel(Im2col, "backward")
def im2col_backward(op: Im2col, call: CudaCall) -> Iterator[Launch]:
    added = call.accumulates("dx0")
    for frame in [] if added else unreached_frames(op.outer, "image"):
        part = CudaCall({"y0": at(call["dx0"], frame, op, op.x)}, {"y0": op.items * (op.x.count // op.x.shape[0])})
        yield from fill(Fill(0.0), part)
    for run in frame_runs(op.outer, "image"):
        dx, dy = at(call["dx0"], run.image, op, op.x), at(call["dy0"], run.maps, op, op.y)
        yield im2col(op, "backward", run, dx, dy, added or not run.first)
