"""Upsample: a strided copy with stride 0 along the copies; backward sums them along columns, then along rows."""

from __future__ import annotations

from collections.abc import Collection

from layermem.backends.cpu.base import CpuCall, Launch, kernel
from layermem.backends.cpu.support.launch import Axis, launch, query
from layermem.errors import InputError
from layermem.ops import Unpool, Upsample
from layermem.utils.units import aligned


@kernel(Upsample, "forward")
def upsample_forward(op: Upsample, call: CpuCall) -> list[Launch]:
    n, c, h, w = op.x.shape
    s = op.scale
    return [
        launch(
            "copy_block",
            [n * h, s, w, s, c],
            out=call["y0"],
            out_strides=[s * w * s * c, w * s * c, s * c, c, 1],
            x=call["x0"],
            x_strides=[w * c, 0, c, 0, 1],
        )
    ]


def column_axis(op: Upsample) -> Axis:
    n, c, h, w = op.x.shape
    return (n * h * op.scale * w, op.scale, c)


def row_axis(op: Upsample) -> Axis:
    n, c, h, w = op.x.shape
    return (n * h, op.scale, w * c)


def own_bytes(op: Upsample) -> int:
    return aligned(max(query("reduce_workspace_bytes", axis) for axis in (column_axis(op), row_axis(op))))


def backward_workspace_bytes(op: Upsample, roles: Collection[str]) -> int:
    return own_bytes(op) + aligned(op.y.nbytes // op.scale)


@kernel(Upsample, "backward", workspace=backward_workspace_bytes)
def upsample_backward(op: Upsample, call: CpuCall) -> list[Launch]:
    columns = call.workspace + own_bytes(op)
    return [
        launch("reduce", column_axis(op), "plain", y=columns, x=call["dy0"], factor=1, workspace=call.workspace),
        launch(
            "reduce",
            row_axis(op),
            "plain",
            y=call["dx0"],
            x=columns,
            factor=1,
            accumulate=call.accumulates("dx0"),
            workspace=call.workspace,
        ),
    ]


def sizes(op: Unpool) -> tuple[int, int, int, int]:
    """(n, c, pixels of x, pixels of y)"""
    n, c, h, w = op.x.shape
    return n, c, h * w, op.plane


@kernel(Unpool, "forward")
def unpool_forward(op: Unpool, call: CpuCall) -> list[Launch]:
    bound = launch("unpool_forward", *sizes(op), y=call["y0"], x=call["x0"], mask=call["x1"])

    def run() -> None:
        try:
            bound()
        except ValueError as error:
            raise InputError(
                f"{error}, but its top has {op.y.shape[2]} x {op.y.shape[3]} pixels; use the scale of the Pooling that "
                "gives the mask, or upsample_h and upsample_w",
                layer=call.layer,
            ) from None

    return [run]


@kernel(Unpool, "backward")
def unpool_backward(op: Unpool, call: CpuCall) -> list[Launch]:
    return [
        launch(
            "unpool_backward",
            *sizes(op),
            dx=call["dx0"],
            dy=call["dy0"],
            mask=call["x1"],
            accumulate=call.accumulates("dx0"),
        )
    ]
