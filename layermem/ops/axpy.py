"""Axpy: a blob scaled by channel, added to another."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import PerItem, Tensor
from layermem.ops.scale import Scale


@dataclass(frozen=True)
class Axpy(PerItem):
    """y = a x + b, with a number a for each channel of each item.

    forward    y0 from x0 (a, [N,C]), x1 (x), x2 (b)
    backward   dx0, dx1 from x0, x1, dy0
    residual_backward   dx2 = dy0
    """

    x: Tensor

    @property
    def scale(self) -> Scale:
        """The product a x as a Scale: its x0 is x1 here, and its operand x1 is x0 here."""
        view = (*self.x.shape[:2], *(1,) * (len(self.x.shape) - 2))
        return Scale(self.x, "x1", view, tuple(range(2, len(self.x.shape))))


AS_SCALE = {"x0": "x1", "x1": "x0", "dx0": "dx1", "dx1": "dx0"}  # roles of Axpy in Axpy.scale
