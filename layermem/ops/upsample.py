"""Upsample: every pixel `scale` x `scale` times."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import OpRecord, Tensor


@dataclass(frozen=True)
class Upsample(OpRecord):
    """y[.., i, j] = x[.., i / scale, j / scale], rounded down.    forward   y0 from x0    backward   dx0 from dy0"""

    x: Tensor
    y: Tensor
    scale: int
