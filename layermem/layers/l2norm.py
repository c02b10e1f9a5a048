"""Normalize: vectors of length one, times a learned scale.

    y = w x / sqrt(sum x^2 + eps),  the sum over the channels of each pixel, or with across_spatial (the default) over
    all of an item;  w is one number where channel_shared (the default), else one per channel
    memory   stashes nothing: backward sums x again, which it reads in any case.  A pixel, or an item, is summed before
             any of it is written, so outputs may overlay inputs
    source   normalize_layer.cpp of the SSD fork of Caffe (weiliu89/caffe), NormalizeParameter

With a scale per channel, the SSD fork leaves the scale out of one of the two terms of the data gradient.  Its result is
the derivative only while all channels have the same scale, as they have initially.  Here it always is the derivative.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from layermem import ops
from layermem.errors import InputError
from layermem.layers.activation import elementwise_overlays
from layermem.layers.base import CAFFE_VALUE_BYTES, Y_OVER_X, Layer, Step, layer
from layermem.proto.schema import FillerParameter


@layer("Normalize")
class Normalize(Layer):
    family = "normalization"
    record: ops.L2Norm
    inplace = True

    def setup(self) -> None:
        p, x = self.param.norm_param, self.bottoms[0]
        if len(x.shape) not in (2, 4):
            raise InputError(
                f"has a bottom of {len(x.shape)} axes ({x}); Normalize takes N x C or N x C x H x W: Reshape it first"
            )
        filler = p.scale_filler if p.HasField("scale_filler") else FillerParameter(type="constant", value=1)
        self.params = (self.make_param(0, () if p.channel_shared else (x.shape[1],), filler),)
        self.tops = (x,)
        self.record = ops.L2Norm(x, p.across_spatial, p.channel_shared, p.eps)

    @property
    def caffe_state_bytes(self) -> int:
        """Bytes of the norm of each image or pixel, and of one image as workspace."""
        x = self.bottoms[0]
        norms = x.shape[0] if self.param.norm_param.across_spatial else x.count // x.shape[1]
        return CAFFE_VALUE_BYTES * norms + x.nbytes // max(1, x.shape[0])

    def forward(self) -> Step:
        overlays = (Y_OVER_X,)
        return Step("forward", ("x0", "w0"), ("y0",), overlays=overlays, flops=4 * self.tops[0].count)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        writes = tuple(role for role in ("dx0", "dw0") if role in wants)
        reads = ("x0", "w0", "dy0") if "dx0" in wants else ("x0", "dy0")
        overlays = elementwise_overlays("dx0", "dy0", "x0") if "dx0" in wants else ()
        flops = 5 * len(writes) * self.tops[0].count
        return (Step("backward", reads, writes, overlays=overlays, flops=flops),) if writes else ()
