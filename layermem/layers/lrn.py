"""LRN: local response normalization.

LRN        y = x scale^-beta,  scale = k + alpha/n sum x^2 over n channels around (within a channel: 1 + alpha/n^2
           sum x^2 over the n x n pixels around; Caffe takes no k there)
memory     no stash; backward recomputes the scale from x, where Caffe keeps a blob as large as x
source     Caffe lrn_layer.cpp
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from layermem import ops
from layermem.errors import InputError
from layermem.layers.base import DX_OVER_DY, DX_OVER_X, Y_OVER_X, Layer, Step, layer

WITHIN_CHANNEL = 1


@layer("LRN")
class LRN(Layer):
    """Across channels, kernels read all channels of a pixel before they write one, which permits the overlays."""

    family = "normalization"
    bottom_forms = ("N,C,H,W",)
    caffe_reads = "xy"
    record: ops.LRN
    inplace = True

    def setup(self) -> None:
        p = self.param.lrn_param
        x = self.bottoms[0]
        if len(x.shape) != 4:
            raise InputError(f"has a bottom of {len(x.shape)} axes ({x}); LRN takes N x C x H x W: Reshape it first")
        if p.local_size % 2 == 0:
            raise InputError(f"has local_size {p.local_size}; it must be odd: use {p.local_size + 1}")
        across, size = p.norm_region != WITHIN_CHANNEL, p.local_size
        alpha = p.alpha / (size if across else size**2)
        reach = x.shape[1] if across else max(x.shape[2:])
        size = min(size, 2 * reach - 1)  # this window covers everything; a wider one adds zeros beyond the border
        self.record = ops.LRN(x, across, size, alpha, p.beta, p.k if across else 1.0)
        self.tops = (x,)
        sums = size if across else 2 * size  # within a channel: rows, then columns
        self.flops = x.count * (sums + 5)  # square, sums, k + alpha *, power, product

    @property
    def caffe_state_bytes(self) -> int:
        """Bytes, across channels, of the scale of each element; within them, of the blobs of an inner net of split,
        square, pool and power."""
        return self.bottoms[0].nbytes * (1 if self.param.lrn_param.norm_region != WITHIN_CHANNEL else 5)

    def forward(self) -> Step:
        overlays = (Y_OVER_X,) if self.record.across else ()
        return Step("forward", ("x0",), ("y0",), overlays=overlays, flops=self.flops)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        overlays = (DX_OVER_DY, DX_OVER_X) if self.record.across else ()
        return (Step("backward", ("x0", "dy0"), ("dx0",), overlays=overlays, flops=2 * self.flops),)
