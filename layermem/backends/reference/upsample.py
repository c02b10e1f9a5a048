"""Upsample repeats pixels, and its backward sums the copies; Unpool puts pixels at the indices of a mask."""

from __future__ import annotations

import numpy as np

from layermem.backends.reference.base import Array, ReferenceCall, kernel
from layermem.errors import InputError
from layermem.ops import Unpool, Upsample


@kernel(Upsample, "forward")
def upsample_forward(op: Upsample, call: ReferenceCall) -> None:
    call["y0"][...] = call["x0"].repeat(op.scale, axis=2).repeat(op.scale, axis=3)


@kernel(Upsample, "backward")
def upsample_backward(op: Upsample, call: ReferenceCall) -> None:
    n, c, h, w = op.x.shape
    call["dx0"][...] = call["dy0"].reshape(n, c, h, op.scale, w, op.scale).sum(axis=(3, 5))


def places(op: Unpool, call: ReferenceCall) -> Array:
    """The mask as integers [N, C, H W]; InputError for an index outside of the plane of y."""
    mask = call["x1"]
    wrong = ~((mask > -1) & (mask < op.plane))
    if wrong.any():
        raise InputError(
            f"reads index {mask[wrong][0]:.9g} in its mask, but its top has {op.y.shape[2]} x {op.y.shape[3]} pixels; "
            "use the scale of the Pooling that gives the mask, or upsample_h and upsample_w",
            layer=call.layer,
        )
    whole: Array = mask.astype(np.int64).reshape(*mask.shape[:2], -1)
    return whole


@kernel(Unpool, "forward")
def unpool_forward(op: Unpool, call: ReferenceCall) -> None:
    at, x = places(op, call), call["x0"]
    y = np.zeros((*at.shape[:2], op.plane), x.dtype)
    np.put_along_axis(y, at, x.reshape(at.shape), axis=2)
    call["y0"][...] = y.reshape(op.y.shape)


@kernel(Unpool, "backward")
def unpool_backward(op: Unpool, call: ReferenceCall) -> None:
    at, dy = places(op, call), call["dy0"]
    call["dx0"][...] = np.take_along_axis(dy.reshape(*at.shape[:2], -1), at, axis=2).reshape(op.x.shape)
