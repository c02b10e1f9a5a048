"""Reduction and ArgMax: many elements become few."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import MIXES, PIECES, Along, OpRecord, Tensor


@dataclass(frozen=True)
class Reduction(OpRecord):
    """Reduces all axes from `along` on to one number: `operation` is SUM, MEAN, ASUM or SUMSQ, times `factor`.

    forward   y0 from x0        backward   dx0 from dy0, and x0 for ASUM and SUMSQ
    """

    operation: str
    x: Tensor
    y: Tensor
    along: int
    factor: float

    def over_items(self, step: str) -> Along:
        return PIECES if self.along else MIXES


@dataclass(frozen=True)
class ArgMax(OpRecord):
    """forward   y0 from x0: the places, values or both of the `top_k` largest along an axis (None: of each item)"""

    x: Tensor
    y: Tensor
    along: int | None
    top_k: int
    with_values: bool

    def over_items(self, step: str) -> Along:
        return MIXES if self.along == 0 else PIECES
