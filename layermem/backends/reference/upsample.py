"""Upsample: the nearest neighbour, and the sums of its copies."""

from __future__ import annotations

from layermem.backends.reference.base import ReferenceCall, kernel
from layermem.ops import Upsample


@kernel(Upsample, "forward")
def upsample_forward(op: Upsample, call: ReferenceCall) -> None:
    call["y0"][...] = call["x0"].repeat(op.scale, axis=2).repeat(op.scale, axis=3)


@kernel(Upsample, "backward")
def upsample_backward(op: Upsample, call: ReferenceCall) -> None:
    n, c, h, w = op.x.shape
    call["dx0"][...] = call["dy0"].reshape(n, c, h, op.scale, w, op.scale).sum(axis=(3, 5))
