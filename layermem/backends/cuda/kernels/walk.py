"""Counting through the axes of a blob, in whatever order: the Walk of cuda/walk.cuh."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from layermem.backends.cuda.launch import divider
from layermem.errors import InputError
from layermem.layers import Tensor

Axes = Sequence[tuple[int, int]]  # (size, stride in elements), the fastest last


def memory_order(rank: int) -> Sequence[int]:
    """Caffe's axes in the order of memory."""
    return (0, 2, 3, 1) if rank == 4 else range(rank)


def strides(tensor: Tensor) -> list[int]:
    """How far apart neighbours lie in memory, by Caffe's axes."""
    found, step = [0] * len(tensor.shape), 1
    for axis in reversed(memory_order(len(tensor.shape))):
        found[axis], step = step, step * tensor.shape[axis]
    return found


def merged(axes: Axes) -> list[tuple[int, int]]:
    """The same walk through fewer axes: those of size 1 are left out, neighbours that continue each other are one."""
    found: list[tuple[int, int]] = []
    for size, stride in axes:
        if size == 1:
            continue
        if found and found[-1][1] == size * stride:
            found[-1] = (found[-1][0] * size, stride)
        else:
            found.append((size, stride))
    return found


def walk(axes: Axes) -> Mapping[str, Any]:
    """The struct, for up to four axes that do not merge."""
    few = merged(axes)
    if len(few) > 4:
        raise InputError(f"has a blob of {len(few)} axes that lie apart; the cuda device takes 4: Reshape it first")
    whole = [(1, 0)] * (4 - len(few)) + few
    return {
        **{f"s{i}": divider(whole[i][0]) for i in (1, 2, 3)},
        **{f"stride{i}": whole[i][1] for i in range(4)},
    }


def along(tensor: Tensor, axes: Iterable[int]) -> list[tuple[int, int]]:
    """Those of Caffe's axes, in the order given, as the tensor has them in memory."""
    step = strides(tensor)
    return [(tensor.shape[axis], step[axis]) for axis in axes]
