"""Interp and Crop: the same channels on another grid of pixels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from layermem.backends.cuda.base import CudaCall, kernel
from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, divider, launch, vector_width
from layermem.errors import InputError
from layermem.ops import Crop, Interp, Tensor

MAX_PIXELS = 1 << 15  # per axis, so that the product of two sizes is below 2^31
MAX_AXES = 4  # limit of a Crop

# -- Interp ------------------------------------------------------------------------------------------------------------


@kernel(Interp, "forward")
def interp_forward(op: Interp, call: CudaCall) -> Iterator[Launch]:
    yield interp(op, "forward", op.y, call["y0"], call["x0"], False)


@kernel(Interp, "backward")
def interp_backward(op: Interp, call: CudaCall) -> Iterator[Launch]:
    yield interp(op, "backward", op.x, call["dx0"], call["dy0"], call.accumulates("dx0"))


def interp(op: Interp, step: str, written: Tensor, y: int, x: int, accumulate: bool) -> Launch:
    """y has the shape `written`; one thread per pixel of it and V channels."""
    _, channels, height, width = op.x.shape
    if max(height, width, *op.y.shape[2:]) > MAX_PIXELS:
        raise InputError(f"resizes an image of more than {MAX_PIXELS} pixels along an axis; crop it first")
    v = vector_width(channels)
    count = written.count // v
    return launch(
        "resize",
        f"interp_{step}_v{v}",
        "InterpArgs",
        ceil_div(count, THREADS),
        y=y,
        x=x,
        rows=asdict(op.rows),
        columns=asdict(op.columns),
        height=height,
        width=width,
        channels=channels,
        by_runs=divider(channels // v),
        by_columns=divider(written.shape[3]),
        by_rows=divider(written.shape[2]),
        count=count,
        accumulate=accumulate,
    )


# -- Crop --------------------------------------------------------------------------------------------------------------


@kernel(Crop, "forward")
def crop_forward(op: Crop, call: CudaCall) -> Iterator[Launch]:
    yield crop(call["y0"], op.y, call["x0"], op.x, op.offsets, False)


@kernel(Crop, "backward")
def crop_backward(op: Crop, call: CudaCall) -> Iterator[Launch]:
    shifts = tuple(-offset for offset in op.offsets)
    yield crop(call["dx0"], op.x, call["dy0"], op.y, shifts, call.accumulates("dx0"))


def crop(y: int, into: Tensor, x: int, source: Tensor, shifts: tuple[int, ...], accumulate: bool) -> Launch:
    """Element i of y is element i + shift of x, or zero; `shifts` by Caffe's axes."""
    if len(shifts) > MAX_AXES:
        raise InputError(
            f"crops a bottom of {len(shifts)} axes; the cuda device crops up to {MAX_AXES}: Reshape it first"
        )
    in_memory = Tensor(shifts).stored if len(shifts) == MAX_AXES else shifts
    missing = MAX_AXES - len(in_memory)
    to, of, by = ((fill,) * missing + tuple(t) for fill, t in ((1, into.stored), (1, source.stored), (0, in_memory)))
    v = vector_width(to[3], of[3], by[3])
    return launch(
        "shape",
        f"crop_v{v}",
        "CropArgs",
        ceil_div(into.count, THREADS * v),
        y=y,
        x=x,
        y1=divider(to[1]),
        y2=divider(to[2]),
        y3=divider(to[3]),
        x0=of[0],
        x1=of[1],
        x2=of[2],
        x3=of[3],
        shift0=by[0],
        shift1=by[1],
        shift2=by[2],
        shift3=by[3],
        count=into.count,
        accumulate=accumulate,
    )
