"""Local response normalization."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import PerItem, Tensor


@dataclass(frozen=True)
class LRN(PerItem):
    """y = x s^-beta with s = k + alpha (sum of squares around), over `size` channels or, within a channel, size x size
    pixels.  alpha is Caffe's divided by the number of elements summed.

    forward   y0 from x0        backward   dx0 from x0, dy0
    """

    x: Tensor
    across: bool
    size: int
    alpha: float
    beta: float
    k: float
