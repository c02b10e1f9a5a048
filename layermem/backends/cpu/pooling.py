"""Pooling: the maximum, or the mean, of each window."""

from __future__ import annotations

from layermem._native import cpu
from layermem.backends.cpu.base import CpuCall, Launch, kernel
from layermem.ops import Pool


def native(op: Pool) -> cpu.PoolProblem:
    rows, columns = op.windows
    n, c, h, w = op.x.shape
    _, _, out_h, out_w = op.y.shape
    return cpu.PoolProblem(
        n=n, c=c, h=h, w=w, out=(out_h, out_w), kernel=(rows.kernel, columns.kernel),
        stride=(rows.stride, columns.stride), pad=(rows.pad, columns.pad),
    )  # fmt: skip


@kernel(Pool, "forward")
def pool_forward(op: Pool, call: CpuCall) -> list[Launch]:
    if op.method == "AVE":
        return [cpu.average_pool_forward(native(op), y=call["y0"], x=call["x0"])]
    return [cpu.max_pool_forward(native(op), y=call["y0"], x=call["x0"], argmax=call["argmax"])]


@kernel(Pool, "backward")
def pool_backward(op: Pool, call: CpuCall) -> list[Launch]:
    dx, dy, accumulate = call["dx0"], call["dy0"], call.accumulates("dx0")
    if op.method == "AVE":
        return [cpu.average_pool_backward(native(op), dx=dx, dy=dy, accumulate=accumulate)]
    return [cpu.max_pool_backward(native(op), dx=dx, dy=dy, argmax=call["argmax"], accumulate=accumulate)]
