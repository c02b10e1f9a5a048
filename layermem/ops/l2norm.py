"""L2Norm: vectors of length one, times a learned scale."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from layermem.ops.base import PIECES, WEIGHTS, Along, OpRecord, Tensor


@dataclass(frozen=True)
class L2Norm(OpRecord):
    """y = w x / sqrt(sum x^2 + eps): the sum is over the channels of a pixel, or `across` all of an item.

    shared   one number w0 [], else one per channel, w0 [C]

    forward   y0 from x0, w0        backward   dx0, dw0 from x0, w0, dy0
    """

    x: Tensor
    across: bool
    shared: bool
    eps: float

    @property
    def channels(self) -> int:
        return self.x.shape[1]

    @property
    def pixels(self) -> int:
        """Number of pixels of the whole batch; an item of N x C is one pixel."""
        return self.x.count // self.channels

    @property
    def group(self) -> int:
        """Number of pixels that share a norm."""
        return prod(self.x.shape[2:]) if self.across else 1

    def over_items(self, step: str) -> Along:
        return WEIGHTS if step == "backward" else PIECES
