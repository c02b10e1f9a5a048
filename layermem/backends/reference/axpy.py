"""Axpy: a blob scaled by channel, added to another."""

from __future__ import annotations

from layermem.backends.reference.base import ReferenceCall, double_sum, kernel
from layermem.backends.reference.shape import copy
from layermem.ops import Axpy


@kernel(Axpy, "forward")
def axpy_forward(op: Axpy, call: ReferenceCall) -> None:
    call["y0"][...] = call["x0"].reshape(op.scale.view) * call["x1"] + call["x2"]


@kernel(Axpy, "backward")
def axpy_backward(op: Axpy, call: ReferenceCall) -> None:
    if "dx0" in call:
        sums = double_sum(call["dy0"] * call["x1"], op.scale.summed)
        call["dx0"][...] = sums.reshape(call["dx0"].shape)
    if "dx1" in call:  # last: it may overlay dy or x
        call["dx1"][...] = call["dy0"] * call["x0"].reshape(op.scale.view)


@kernel(Axpy, "residual_backward")
def axpy_residual_backward(op: Axpy, call: ReferenceCall) -> None:
    copy(call["dx2"], call["dy0"])
