"""Eltwise: sums in the order of the bottoms; every output is complete before any is stored, since it may overlay an
input."""

from __future__ import annotations

from math import prod

import numpy as np

from layermem.backends.reference.activation import apply_relu_mask
from layermem.backends.reference.base import Array, ReferenceCall, kernel
from layermem.backends.reference.support.epilogue import finish_epilogue
from layermem.ops import Eltwise, ResidualGrad


def weighted(coeff: float, x: Array) -> Array:
    return x if coeff == 1 else coeff * x


@kernel(Eltwise, "forward")
def eltwise_forward(op: Eltwise, call: ReferenceCall) -> None:
    xs = call.all("x")
    if op.operation == "PROD":
        call["y0"][...] = prod(xs[1:], start=xs[0])
    elif op.operation == "SUM":
        total = weighted(op.coeffs[0], xs[0])
        for coeff, x in zip(op.coeffs[1:], xs[1:], strict=True):
            total = total + weighted(coeff, x)
        finish_epilogue(op, call, total, relu=op.relu, residual=False)
    else:
        best, winner = xs[0], np.zeros(xs[0].shape, np.int32)
        for i, x in enumerate(xs[1:], start=1):
            keep = best > x
            best, winner = np.where(keep, best, x), np.where(keep, winner, i)
        call["y0"][...] = best
        if "winner" in call:
            call["winner"][...] = winner


@kernel(Eltwise, "backward")
def eltwise_backward(op: Eltwise, call: ReferenceCall) -> None:
    count, dy = op.bottoms, apply_relu_mask(call) if op.relu else call["dy0"]
    wanted = [i for i in range(count) if f"dx{i}" in call]
    if op.operation == "SUM":
        gradients = [weighted(op.coeffs[i], dy) for i in wanted]
    elif op.operation == "PROD":
        gradients = [prod((call[f"x{j}"] for j in range(count) if j != i), start=dy) for i in wanted]
    else:
        gradients = [np.where(call["winner"] == i, dy, 0) for i in wanted]
    complete = sorted(zip(wanted, gradients, strict=True), key=lambda pair: pair[1] is not dy)
    for i, gradient in complete:  # dy itself first, because a later one may overlay it
        call[f"dx{i}"][...] = gradient


@kernel(ResidualGrad, "residual_backward")
def residual_backward(op: ResidualGrad, call: ReferenceCall) -> None:
    call["dx1"][...] = call["dy0"]
