"""Interp and Crop: Interp is one axis after the other, rows last; its backward is the same in reverse."""

from __future__ import annotations

from typing import Any

import numpy as np

from layermem.backends.reference.base import Buffers, kernel


def sample(line: Any, a: np.ndarray, axis: int) -> np.ndarray:
    """`a` at the places of a Resampling along `axis`."""
    low, high, t = (np.array(v) for v in zip(*(line.tap(i) for i in range(line.out)), strict=True))
    t = t.astype(a.dtype).reshape(-1, *(1,) * (a.ndim - 1 - axis))
    return a.take(low, axis) * (1 - t) + a.take(high, axis) * t


def scatter(line: Any, a: np.ndarray, axis: int, size: int) -> np.ndarray:
    """The transpose of `sample`: each element is shared out among the two of `size` that it came from."""
    shape = list(a.shape)
    shape[axis] = size
    total = np.zeros(shape, a.dtype)
    into, along = np.moveaxis(total, axis, 0), np.moveaxis(a, axis, 0)
    for i in range(line.out):
        low, high, t = line.tap(i)
        into[low] += (1 - t) * along[i]
        if t:
            into[high] += t * along[i]
    return total


@kernel("Interp.forward")
def interp_forward(layer: Any, b: Buffers) -> None:
    b.y[...] = sample(layer.rows, sample(layer.columns, b.x0, 3), 2)


@kernel("Interp.backward")
def interp_backward(layer: Any, b: Buffers) -> None:
    _, _, height, width = b.dx0.shape
    b.dx0[...] = scatter(layer.columns, scatter(layer.rows, b.dy, 2, height), 3, width)


def kept(layer: Any) -> tuple[slice, ...]:
    return tuple(slice(o, o + size) for o, size in zip(layer.offsets, layer.tops[0].shape, strict=True))


@kernel("Crop.forward")
def crop_forward(layer: Any, b: Buffers) -> None:
    b.y[...] = b.x0[kept(layer)]


@kernel("Crop.backward")
def crop_backward(layer: Any, b: Buffers) -> None:
    b.dx0[...] = 0
    b.dx0[kept(layer)] = b.dy
