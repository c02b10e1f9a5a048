"""Eltwise: sums in the order of the bottoms; every output is complete before any is stored, since it may lie on an
input."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from layermem.backends.reference.base import Buffers, kernel


def weighted(coeff: float, x: np.ndarray) -> np.ndarray:
    return x if coeff == 1 else coeff * x


@kernel("Eltwise.forward")
def forward(layer: Any, b: Buffers) -> None:
    xs = b.xs
    if layer.operation == "PROD":
        b.y[...] = prod(xs[1:], start=xs[0])
    elif layer.operation == "SUM":
        total = weighted(layer.coeffs[0], xs[0])
        for coeff, x in zip(layer.coeffs[1:], xs[1:], strict=True):
            total = total + weighted(coeff, x)
        b.y[...] = total
    else:
        best, winner = xs[0], np.zeros(xs[0].shape, np.int32)
        for i, x in enumerate(xs[1:], start=1):
            keep = best > x
            best, winner = np.where(keep, best, x), np.where(keep, winner, i)
        b.y[...] = best
        if b.winner is not None:
            b.winner[...] = winner


@kernel("Eltwise.backward")
def backward(layer: Any, b: Buffers) -> None:
    count = len(layer.bottoms)
    wanted = [i for i in range(count) if b.has(f"dx{i}")]
    if layer.operation == "SUM":
        gradients = [weighted(layer.coeffs[i], b.dy) for i in wanted]
    elif layer.operation == "PROD":
        gradients = [prod((getattr(b, f"x{j}") for j in range(count) if j != i), start=b.dy) for i in wanted]
    else:
        gradients = [np.where(b.winner == i, b.dy, 0) for i in wanted]
    complete = sorted(zip(wanted, gradients, strict=True), key=lambda pair: pair[1] is not b.dy)
    for i, gradient in complete:  # dy itself first: a later one may be written over it
        getattr(b, f"dx{i}")[...] = gradient
