"""Permute: a transposition of the array whose axes are split into parts."""

from __future__ import annotations

import numpy as np

from layermem.backends.reference.base import ReferenceCall, kernel
from layermem.ops import Permute


@kernel(Permute, "forward")
def permute_forward(op: Permute, call: ReferenceCall) -> None:
    call["y0"][...] = call["x0"].reshape(op.sizes).transpose(op.order).reshape(op.y.shape)


@kernel(Permute, "backward")
def permute_backward(op: Permute, call: ReferenceCall) -> None:
    parts = call["dy0"].reshape([op.sizes[axis] for axis in op.order])
    call["dx0"][...] = parts.transpose(np.argsort(op.order)).reshape(op.x.shape)
