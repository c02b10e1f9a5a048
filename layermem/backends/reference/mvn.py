"""MVN: means and variances are computed in double precision for all blob types."""

from __future__ import annotations

import numpy as np

from layermem.backends.reference.base import Array, ReferenceCall, kernel
from layermem.ops import MVN


def mean_of(op: MVN, a: Array) -> Array:
    """The mean of each group, with the axes of `a` [N,C,H,W]."""
    axes = (1, 2, 3) if op.across else (2, 3)
    mean: Array = a.astype(np.float64).mean(axis=axes, keepdims=True)
    return mean


@kernel(MVN, "forward")
def mvn_forward(op: MVN, call: ReferenceCall) -> None:
    x = call["x0"].reshape(op.x.shape)
    centered = x - mean_of(op, x).astype(x.dtype)
    if not op.normalize:
        call["y0"][...] = centered
        return
    inv_std = 1 / (np.sqrt(mean_of(op, np.square(centered))) + op.eps)
    if "inv_std" in call:
        call["inv_std"][...] = inv_std.reshape(-1)
    call["y0"][...] = centered * inv_std.astype(x.dtype)


@kernel(MVN, "backward")
def mvn_backward(op: MVN, call: ReferenceCall) -> None:
    dy = call["dy0"]
    dx = dy - mean_of(op, dy).astype(dy.dtype)
    if op.normalize:
        y = call["y0"]
        inv_std = call["inv_std"].reshape(op.x.shape[0], -1, 1, 1)
        dx = (dx - y * mean_of(op, y * dy).astype(dy.dtype)) * inv_std
    call["dx0"][...] = dx.reshape(call["dx0"].shape)
