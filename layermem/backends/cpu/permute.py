"""Permute: a strided copy."""

from __future__ import annotations

from layermem._native import cpu
from layermem.backends.cpu.base import CpuCall, Launch, kernel
from layermem.backends.cpu.copy import copy_unless_shared
from layermem.ops import Permute


@kernel(Permute, "forward")
def permute_forward(op: Permute, call: CpuCall) -> list[Launch]:
    of_x, of_y = op.strides
    return copy_between(op, call, "y0", of_y, "x0", of_x)


@kernel(Permute, "backward")
def permute_backward(op: Permute, call: CpuCall) -> list[Launch]:
    of_x, of_y = op.strides
    return copy_between(op, call, "dx0", of_x, "dy0", of_y)


def copy_between(
    op: Permute, call: CpuCall, out: str, to: tuple[int, ...], x: str, source: tuple[int, ...]
) -> list[Launch]:
    """The strides are those of op.sizes in both memories; runs of the copy lie along the memory of `out`."""
    if op.view:
        return copy_unless_shared(call, out, x)
    axes = sorted(range(len(op.sizes)), key=lambda axis: (-to[axis], -source[axis]))
    return [
        cpu.copy_block(
            [op.sizes[axis] for axis in axes], out=call[out], out_strides=[to[axis] for axis in axes], x=call[x],
            x_strides=[source[axis] for axis in axes], accumulate=call.accumulates(out),
        )
    ]  # fmt: skip
