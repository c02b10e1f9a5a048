"""Interp and Crop: the same channels on another grid of pixels."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import MIXES, PIECES, Along, OpRecord, PerItem, Tensor


@dataclass(frozen=True)
class Resampling:
    """One axis of a bilinear grid that samples `size` pixels, from `offset` on, at `out` places."""

    offset: int
    size: int
    out: int

    def tap(self, i: int) -> tuple[int, int, float]:
        """(low, high, t) of y[i] = (1 - t) x[low] + t x[high]; integer arithmetic gives every device the same t."""
        if self.out == 1:
            return self.offset, self.offset, 0.0
        low, rest = divmod(i * (self.size - 1), self.out - 1)
        return self.offset + low, self.offset + low + (rest > 0), rest / (self.out - 1)


@dataclass(frozen=True)
class Interp(PerItem):
    """forward   y0 from x0, bilinear        backward   dx0 from dy0"""

    x: Tensor
    y: Tensor
    rows: Resampling
    columns: Resampling


@dataclass(frozen=True)
class Crop(OpRecord):
    """forward   y0 = the part of x0 from `offsets` (one per axis) on        backward   dx0 from dy0"""

    x: Tensor
    y: Tensor
    offsets: tuple[int, ...]

    def over_items(self, step: str) -> Along:
        return PIECES if self.x.shape[0] == self.y.shape[0] else MIXES
