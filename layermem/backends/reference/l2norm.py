"""L2Norm.  Its sums are in double precision for all blob types."""

from __future__ import annotations

import numpy as np

from layermem.backends.reference.base import Array, ReferenceCall, double_sum, kernel, sum_of_items
from layermem.ops import L2Norm


def sum_group(op: L2Norm, a: Array) -> Array:
    """The sums over the elements that share a norm, with the axes of `a`."""
    axes = tuple(range(1, a.ndim)) if op.across else 1
    return np.expand_dims(double_sum(a, axes), axes)


def inverse_norm(op: L2Norm, x: Array) -> Array:
    inverse: Array = (1 / np.sqrt(sum_group(op, x * x) + op.eps)).astype(x.dtype)
    return inverse


def scale_of(op: L2Norm, w: Array, like: Array) -> Array:
    return w if op.shared else w.reshape(1, -1, *(1,) * (like.ndim - 2))


@kernel(L2Norm, "forward")
def l2norm_forward(op: L2Norm, call: ReferenceCall) -> None:
    x = call["x0"]
    call["y0"][...] = x * inverse_norm(op, x) * scale_of(op, call["w0"], x)


@kernel(L2Norm, "backward", carry=lambda op, role: 8 * (1 if op.shared else op.channels))
def l2norm_backward(op: L2Norm, call: ReferenceCall) -> None:
    # with n the norm and g = w dy:  dx = (g - x sum(g x) / n^2) / n,  dw = sum of dy x / n
    x, dy = call["x0"], call["dy0"]
    inverse = inverse_norm(op, x)
    if call.wants("dw0"):
        axes = tuple(i for i in range(x.ndim - 1) if op.shared or i != 0)
        sums = (double_sum(item, axes) for item in dy * x * inverse)
        total = sum_of_items(op, call, "dw0", () if op.shared else (op.channels,), np.float64, sums)
        if "dw0" in call:
            call["dw0"][...] = total
    if "dx0" in call:
        g = dy * scale_of(op, call["w0"], x)
        dot = sum_group(op, g * x).astype(x.dtype)
        call["dx0"][...] = (g - x * dot * inverse * inverse) * inverse
