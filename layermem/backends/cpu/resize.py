"""Interp and Crop: the same channels on another grid of pixels."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypedDict

from layermem.backends.cpu.base import CpuCall, Launch, kernel
from layermem.backends.cpu.support.launch import launch
from layermem.ops import Crop, Interp, Tensor


class Grid(TypedDict):
    n: int
    c: int
    size: tuple[int, int]
    out: tuple[int, int]
    begin: tuple[int, int]
    region: tuple[int, int]


def grid(op: Interp) -> Grid:
    n, c, h, w = op.x.shape
    rows, columns = op.rows, op.columns
    return {
        "n": n,
        "c": c,
        "size": (h, w),
        "out": (rows.out, columns.out),
        "begin": (rows.offset, columns.offset),
        "region": (rows.size, columns.size),
    }


@kernel(Interp, "forward")
def interp_forward(op: Interp, call: CpuCall) -> list[Launch]:
    return [launch("interp_forward", **grid(op), y=call["y0"], x=call["x0"])]


@kernel(Interp, "backward")
def interp_backward(op: Interp, call: CpuCall) -> list[Launch]:
    return [launch("interp_backward", **grid(op), dx=call["dx0"], dy=call["dy0"], accumulate=call.accumulates("dx0"))]


def strides(shape: Sequence[int]) -> list[int]:
    return [prod(shape[i + 1 :]) for i in range(len(shape))]


def crop_offset(op: Crop) -> int:
    """Bytes before the first element of the cropped part."""
    offsets = Tensor(op.offsets).stored  # one per axis, in the order of memory
    return 4 * sum(offset * stride for offset, stride in zip(offsets, strides(op.x.stored), strict=True))


@kernel(Crop, "forward")
def crop_forward(op: Crop, call: CpuCall) -> list[Launch]:
    return [
        launch(
            "copy_block",
            op.y.stored,
            out=call["y0"],
            out_strides=strides(op.y.stored),
            x=call["x0"] + crop_offset(op),
            x_strides=strides(op.x.stored),
        )
    ]


@kernel(Crop, "backward")
def crop_backward(op: Crop, call: CpuCall) -> list[Launch]:
    accumulate = call.accumulates("dx0")
    clear = [] if accumulate else [launch("pointwise", "fill", call.count("dx0"), out=call["dx0"], alpha=0.0)]
    return [
        *clear,
        launch(
            "copy_block",
            op.y.stored,
            out=call["dx0"] + crop_offset(op),
            out_strides=strides(op.x.stored),
            x=call["dy0"],
            x_strides=strides(op.y.stored),
            accumulate=accumulate,
        ),
    ]
