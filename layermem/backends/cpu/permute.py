"""Permute: a strided copy; a side whose axes the parts do not split is first copied to Caffe's order, or last from
it."""

from __future__ import annotations

from collections.abc import Collection

from layermem.backends.cpu.base import CpuCall, Launch, kernel
from layermem.backends.cpu.copy import copy_unless_shared, reorder, reorder_operand
from layermem.backends.cpu.support.launch import launch
from layermem.ops import Permute, Tensor
from layermem.utils.units import aligned


def copy_bytes(op: Permute) -> int:
    """Bytes of one side in Caffe's order."""
    return aligned(op.x.nbytes) if any(op.plain) else 0


def permute_workspace_bytes(op: Permute, roles: Collection[str]) -> int:
    return 0 if op.view else 2 * copy_bytes(op)


@kernel(Permute, "forward", workspace=permute_workspace_bytes)
def permute_forward(op: Permute, call: CpuCall) -> list[Launch]:
    (of_x, of_y), (plain_x, plain_y) = op.strides, op.plain
    return permute(op, call, "y0", op.y, of_y, plain_y, "x0", op.x, of_x, plain_x)


@kernel(Permute, "backward", workspace=permute_workspace_bytes)
def permute_backward(op: Permute, call: CpuCall) -> list[Launch]:
    (of_x, of_y), (plain_x, plain_y) = op.strides, op.plain
    return permute(op, call, "dx0", op.x, of_x, plain_x, "dy0", op.y, of_y, plain_y)


def permute(
    op: Permute,
    call: CpuCall,
    out: str,
    to: Tensor,
    to_strides: tuple[int, ...],
    to_plain: bool,
    x: str,
    source: Tensor,
    strides: tuple[int, ...],
    plain: bool,
) -> list[Launch]:
    """Copy with strides, which are those of op.sizes on both sides; contiguous runs lie along `out`."""
    if op.view:
        return copy_unless_shared(call, out, x)
    flat = Tensor((op.x.count,))
    at, before = reorder_operand(call, x, source, flat, 0) if plain else (call[x], [])
    reorders = to_plain and not to.ordered_like(flat)
    into = call.workspace + copy_bytes(op) if reorders else call[out]
    axes = sorted(range(len(op.sizes)), key=lambda axis: (-to_strides[axis], -strides[axis]))
    copy = launch(
        "copy_block",
        [op.sizes[axis] for axis in axes],
        out=into,
        out_strides=[to_strides[axis] for axis in axes],
        x=at,
        x_strides=[strides[axis] for axis in axes],
        accumulate=call.accumulates(out) and not reorders,
    )
    after = reorder(call[out], to, into, flat, 0, call.accumulates(out)) if reorders else []
    return [*before, copy, *after]
