"""Permute: one thread per written element; a side whose memory does not match its axes is copied into Caffe's order
before, or out of it afterwards."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from layermem.backends.cuda.base import CudaCall, Workspace, kernel
from layermem.backends.cuda.copy import copy, reorder
from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, divider, launch
from layermem.backends.cuda.support.strided_index import Axes, merge_axes
from layermem.backends.struct_layout import StructValues
from layermem.errors import InputError
from layermem.ops import Permute, Tensor
from layermem.utils.units import aligned

MAX_AXES = 6  # limit of a strided copy, after axes contiguous in both memories are merged


def permute_workspace_bytes(op: Permute, roles: Collection[str]) -> int:
    return 0 if op.view else sum(op.plain) * aligned(op.x.nbytes)


@kernel(Permute, "forward", workspace=permute_workspace_bytes)
def permute_forward(op: Permute, call: CudaCall) -> Iterator[Launch]:
    (of_x, of_y), (plain_x, plain_y) = op.strides, op.plain
    return permute(op, call, "y0", op.y, of_y, plain_y, "x0", op.x, of_x, plain_x)


@kernel(Permute, "backward", workspace=permute_workspace_bytes)
def permute_backward(op: Permute, call: CudaCall) -> Iterator[Launch]:
    (of_x, of_y), (plain_x, plain_y) = op.strides, op.plain
    return permute(op, call, "dx0", op.x, of_x, plain_x, "dy0", op.y, of_y, plain_y)


def permute(
    op: Permute,
    call: CudaCall,
    out: str,
    to: Tensor,
    to_strides: tuple[int, ...],
    to_plain: bool,
    x: str,
    source: Tensor,
    strides: tuple[int, ...],
    plain: bool,
) -> Iterator[Launch]:
    """Permute `x` into `out`; the strides are those of op.sizes on both sides."""
    count, accumulate = op.x.count, call.accumulates(out)
    if op.view:
        yield from copy(call[out], call[x], count, accumulate)
        return
    flat, workspace, at, into = Tensor((count,)), Workspace(call.workspace), call[x], call[out]
    if plain and not source.ordered_like(flat):
        at = workspace.take(op.x.nbytes)
        yield from reorder(at, flat_items(source), call[x], source)
    reorders = to_plain and not to.ordered_like(flat)
    if reorders:
        into = workspace.take(op.x.nbytes)
    axes = sorted(range(len(op.sizes)), key=lambda axis: (-to_strides[axis], -strides[axis]))
    merged = [(op.sizes[axis], strides[axis]) for axis in axes]
    yield strided_copy(merged, into, at, count, accumulate and not reorders)
    if reorders:
        yield from reorder(call[out], to, into, flat_items(to), accumulate)


def flat_items(tensor: Tensor) -> Tensor:
    """The items of a blob, each in Caffe's order."""
    return Tensor((tensor.shape[0], tensor.count // tensor.shape[0]))


def strided_copy(axes: Axes, y: int, x: int, count: int, accumulate: bool) -> Launch:
    """Element i of y, counted through the sizes of `axes`, is the element of x at the sum of index x stride."""
    merged = merge_axes(axes)
    if len(merged) > MAX_AXES:
        raise InputError(
            f"permutes {len(merged)} axes that lie apart; the cuda device takes {MAX_AXES}: Reshape the bottom first"
        )
    padded = [(1, 0)] * (MAX_AXES - len(merged)) + merged
    axes_of_y: StructValues = {
        **{f"s{i}": divider(padded[i][0]) for i in range(1, MAX_AXES)},
        **{f"stride{i}": padded[i][1] for i in range(MAX_AXES)},
    }
    return launch(
        "shape",
        "permute",
        "PermuteArgs",
        ceil_div(count, THREADS),
        base=axes_of_y,
        y=y,
        x=x,
        count=count,
        accumulate=accumulate,
    )
