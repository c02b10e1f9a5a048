"""Local response normalization."""

from __future__ import annotations

import numpy as np

from layermem.backends.reference.base import Array, ReferenceCall, kernel
from layermem.ops import LRN


def sum_along(a: Array, axis: int, size: int) -> Array:
    """The sum of the `size` elements around each one, zero beyond the border."""
    along, total = np.moveaxis(a, axis, 0), np.zeros_like(a)
    into, length = np.moveaxis(total, axis, 0), a.shape[axis]
    for shift in range(-(size // 2), size // 2 + 1):
        first, last = max(0, -shift), length - max(0, shift)
        if first < last:
            into[first:last] += along[first + shift : last + shift]
    return total


def sum_around(op: LRN, a: Array) -> Array:
    if op.across:
        return sum_along(a, 1, op.size)
    return sum_along(sum_along(a, 2, op.size), 3, op.size)


def lrn_scale(op: LRN, x: Array) -> Array:
    return op.k + op.alpha * sum_around(op, x * x)


@kernel(LRN, "forward")
def lrn_forward(op: LRN, call: ReferenceCall) -> None:
    call["y0"][...] = call["x0"] * lrn_scale(op, call["x0"]) ** -op.beta


@kernel(LRN, "backward")
def lrn_backward(op: LRN, call: ReferenceCall) -> None:
    # dx = dy s^-beta - 2 alpha beta x sum_around(dy x s^(-beta-1))
    scale = lrn_scale(op, call["x0"])
    direct = call["dy0"] * scale**-op.beta
    call["dx0"][...] = direct - 2 * op.alpha * op.beta * call["x0"] * sum_around(op, direct * call["x0"] / scale)
