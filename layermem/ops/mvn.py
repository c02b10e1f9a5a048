"""MVN: normalizes each map, or each image, to mean 0 and variance 1."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import PerItem, Tensor


@dataclass(frozen=True)
class MVN(PerItem):
    """y = (x - mean) / (deviation + eps), over the pixels of a channel, or `across` all elements of an image.

    x           [N,C,H,W], the axes of y0; x0 may have fewer
    normalize   False: y = x - mean

    forward    y0 from x0; writes inv_std [groups], 1 / (deviation + eps), where it is declared
    backward   dx0 from dy0 and, with `normalize`, y0, inv_std
    """

    x: Tensor
    across: bool
    normalize: bool
    eps: float

    @property
    def layout(self) -> tuple[int, int, int]:
        """(outer, size, inner): memory is [outer][size][inner], and `size` elements share a mean."""
        n, c, h, w = self.x.shape
        return (n, c * h * w, 1) if self.across else (n, h * w, c)

    @property
    def groups(self) -> Tensor:
        """The shape of one number per mean, in the order of memory."""
        outer, _, inner = self.layout
        return Tensor((outer * inner,))
