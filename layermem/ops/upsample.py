"""Upsample repeats every pixel `scale` x `scale` times; Unpool puts every pixel where a mask says."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import PerItem, Tensor


@dataclass(frozen=True)
class Upsample(PerItem):
    """y[.., i, j] = x[.., i / scale, j / scale], rounded down.    forward   y0 from x0    backward   dx0 from dy0"""

    x: Tensor
    y: Tensor
    scale: int


@dataclass(frozen=True)
class Unpool(PerItem):
    """y[n, c, mask[n, c, i, j]] = x[n, c, i, j], the last of several; others 0.  mask: indices of the plane of y

    forward   y0 from x0, x1 (mask)      backward   dx0 from x1, dy0
    """

    x: Tensor
    y: Tensor

    @property
    def plane(self) -> int:
        return self.y.shape[2] * self.y.shape[3]
