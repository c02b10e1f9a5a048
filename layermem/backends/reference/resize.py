"""Interp and Crop.  Interp works on one axis after the other, rows last; its backward in the reverse order."""

from __future__ import annotations

import numpy as np

from layermem.backends.reference.base import Array, ReferenceCall, kernel
from layermem.ops import Crop, Interp, Resampling


def sample(line: Resampling, a: Array, axis: int) -> Array:
    """`a` sampled along `axis` at the places of a Resampling."""
    low, high, t = (np.array(v) for v in zip(*(line.tap(i) for i in range(line.out)), strict=True))
    t = t.astype(a.dtype).reshape(-1, *(1,) * (a.ndim - 1 - axis))
    sampled: Array = a.take(low, axis) * (1 - t) + a.take(high, axis) * t
    return sampled


def scatter(line: Resampling, a: Array, axis: int, size: int) -> Array:
    """The transpose of `sample`: each element is divided between the two of `size` elements that it was sampled
    from."""
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


@kernel(Interp, "forward")
def interp_forward(op: Interp, call: ReferenceCall) -> None:
    call["y0"][...] = sample(op.rows, sample(op.columns, call["x0"], 3), 2)


@kernel(Interp, "backward")
def interp_backward(op: Interp, call: ReferenceCall) -> None:
    _, _, height, width = call["dx0"].shape
    call["dx0"][...] = scatter(op.columns, scatter(op.rows, call["dy0"], 2, height), 3, width)


def cropped(op: Crop) -> tuple[slice, ...]:
    return tuple(slice(o, o + size) for o, size in zip(op.offsets, op.y.shape, strict=True))


@kernel(Crop, "forward")
def crop_forward(op: Crop, call: ReferenceCall) -> None:
    call["y0"][...] = call["x0"][cropped(op)]


@kernel(Crop, "backward")
def crop_backward(op: Crop, call: ReferenceCall) -> None:
    call["dx0"][...] = 0
    call["dx0"][cropped(op)] = call["dy0"]
