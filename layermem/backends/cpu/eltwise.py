"""Eltwise: bottoms of one shape, combined element by element; and the gradient of a residual."""

from __future__ import annotations

from layermem.backends.cpu.base import MAX_ARRAYS, CpuCall, Launch, Launches, kernel
from layermem.backends.cpu.copy import copy_unless_shared
from layermem.backends.cpu.support.launch import launch
from layermem.ops import Eltwise, ResidualGrad


def forward_blobs(op: Eltwise) -> str:
    """Pattern of the blobs that may be in 16 bits, for sums."""
    return r"x\d+|y0" if op.operation == "SUM" and op.bottoms <= MAX_ARRAYS else ""


def backward_blobs(op: Eltwise) -> str:
    return r"y0|dx\d+|dy0" if op.operation == "SUM" and op.bottoms <= MAX_ARRAYS else ""


@kernel(Eltwise, "forward", narrow=forward_blobs)
def eltwise_forward(op: Eltwise, call: CpuCall) -> Launches:
    if op.bottoms > MAX_ARRAYS:
        return None
    count, y, xs = call.count("y0"), call["y0"], [call[f"x{i}"] for i in range(op.bottoms)]
    if op.operation == "SUM":
        coefficients = list(op.coeffs)
        return [
            launch(
                "eltwise_sum",
                count,
                y=y,
                xs=xs,
                coefficients=coefficients,
                relu=op.relu,
                bits=call["mask"],
                largest_zero=op.largest_zero,
                storage=call.storage,
            )
        ]
    if op.operation == "PROD":
        return [launch("eltwise_product", count, y=y, xs=xs)]
    return [launch("eltwise_max", count, y=y, xs=xs, argmax=call["winner"])]


@kernel(Eltwise, "backward", narrow=backward_blobs, adds_narrow=True)
def eltwise_backward(op: Eltwise, call: CpuCall) -> Launches:
    if op.bottoms > MAX_ARRAYS:
        return None
    roles = [f"dx{i}" for i in range(op.bottoms)]
    count, dy, dxs = call.count("dy0"), call["dy0"], [call[role] for role in roles]
    accumulate = [call.accumulates(role) for role in roles]
    if op.operation == "SUM":
        return [
            launch(
                "eltwise_sum_backward",
                count,
                dxs=dxs,
                dy=dy,
                coefficients=list(op.coeffs),
                accumulate=accumulate,
                mask=call["mask"],
                y=call["y0"],
                storage=call.storage,
            )
        ]
    if op.operation == "PROD":
        xs = [call[f"x{i}"] for i in range(op.bottoms)]
        return [launch("eltwise_product_backward", count, dxs=dxs, xs=xs, dy=dy, accumulate=accumulate)]
    return [launch("eltwise_max_backward", count, dxs=dxs, dy=dy, argmax=call["winner"], accumulate=accumulate)]


@kernel(ResidualGrad, "residual_backward", narrow="dx1|dy0", adds_narrow=True)
def residual_backward(op: ResidualGrad, call: CpuCall) -> list[Launch]:
    return copy_unless_shared(call, "dx1", "dy0")
