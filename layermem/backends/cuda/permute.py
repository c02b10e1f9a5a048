"""Permute: one thread per element of what is written."""

from __future__ import annotations

from collections.abc import Iterator

from layermem.backends.cuda.base import CudaCall, kernel
from layermem.backends.cuda.copy import copy
from layermem.backends.cuda.launch import THREADS, Launch, ceil_div, divider, launch
from layermem.backends.cuda.strided_index import merge_axes
from layermem.backends.cuda.struct_layout import StructValues
from layermem.errors import InputError
from layermem.ops import Permute

MAX_AXES = 6  # that a Permute takes, once neighbours in both memories are merged


@kernel(Permute, "forward")
def permute_forward(op: Permute, call: CudaCall) -> Iterator[Launch]:
    of_x, of_y = op.strides
    return copy_between(op, call, "y0", of_y, "x0", of_x)


@kernel(Permute, "backward")
def permute_backward(op: Permute, call: CudaCall) -> Iterator[Launch]:
    of_x, of_y = op.strides
    return copy_between(op, call, "dx0", of_x, "dy0", of_y)


def copy_between(
    op: Permute, call: CudaCall, out: str, to: tuple[int, ...], x: str, source: tuple[int, ...]
) -> Iterator[Launch]:
    """The strides are those of op.sizes in both memories."""
    if op.view:
        yield from copy(call[out], call[x], op.x.count, call.accumulates(out))
        return
    axes = sorted((axis for axis in range(len(op.sizes)) if op.sizes[axis] > 1), key=lambda axis: -to[axis])
    merged = merge_axes([(op.sizes[axis], source[axis]) for axis in axes])
    if len(merged) > MAX_AXES:
        raise InputError(
            f"permutes {len(merged)} axes that lie apart; the cuda device takes {MAX_AXES}: Reshape the bottom first"
        )
    padded = [(1, 0)] * (MAX_AXES - len(merged)) + merged
    axes_of_y: StructValues = {
        **{f"s{i}": divider(padded[i][0]) for i in range(1, MAX_AXES)},
        **{f"stride{i}": padded[i][1] for i in range(MAX_AXES)},
    }
    yield launch(
        "shape", "permute", "PermuteArgs", ceil_div(op.x.count, THREADS), base=axes_of_y, y=call[out], x=call[x],
        count=op.x.count, accumulate=call.accumulates(out),
    )  # fmt: skip
