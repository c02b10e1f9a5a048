"""StridedIndex of cuda/strided_index.cuh: counts the elements of a blob through its axes in any order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from layermem.backends.cuda.support.launch import divider
from layermem.backends.struct_layout import StructValues
from layermem.errors import InputError
from layermem.ops import Tensor

MAX_AXES = 4
Axes = Sequence[tuple[int, int]]  # (size, stride in elements), the fastest last


def memory_order(rank: int) -> Sequence[int]:
    """Caffe's axes in the order of memory."""
    return (0, 2, 3, 1) if rank == 4 else range(rank)


def strides(tensor: Tensor) -> list[int]:
    """The distance between neighbours in memory, in elements, for each of Caffe's axes."""
    by_axis, step = [0] * len(tensor.shape), 1
    for axis in reversed(memory_order(len(tensor.shape))):
        by_axis[axis], step = step, step * tensor.shape[axis]
    return by_axis


def merge_axes(axes: Axes) -> list[tuple[int, int]]:
    """The same order with fewer axes: axes of size 1 are dropped, and contiguous neighbours are merged."""
    merged: list[tuple[int, int]] = []
    for size, stride in axes:
        if size == 1:
            continue
        if merged and merged[-1][1] == size * stride:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    return merged


def strided_index(axes: Axes) -> StructValues:
    """The fields of the struct, for axes that merge into at most four; InputError for more."""
    merged = merge_axes(axes)
    if len(merged) > MAX_AXES:
        raise InputError(
            f"has a blob of {len(merged)} axes that lie apart; the cuda device takes {MAX_AXES}: Reshape it first"
        )
    padded = [(1, 0)] * (MAX_AXES - len(merged)) + merged
    return {
        **{f"s{i}": divider(padded[i][0]) for i in (1, 2, 3)},
        **{f"stride{i}": padded[i][1] for i in range(MAX_AXES)},
    }


def select_axes(tensor: Tensor, axes: Iterable[int]) -> list[tuple[int, int]]:
    """(size, stride) of some of Caffe's axes, in the given order."""
    step = strides(tensor)
    return [(tensor.shape[axis], step[axis]) for axis in axes]
