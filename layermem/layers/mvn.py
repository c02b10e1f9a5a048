"""MVN: every map, or with `across_channels` every image, gets mean 0 and, with normalize_variance (true), variance 1.

    x [N,C,H,W] -> y [N,C,H,W],  y = (x - mean) / (deviation + eps);  eps 1e-9, and the variance is the biased one
    memory  stashes one number per mean: 1 / (deviation + eps).  Backward reads y and dy; without normalize_variance
            only dy.  A kernel reads a map completely before it writes it, which permits the overlays
    source  Caffe mvn_layer.cpp.  Its gradient neglects eps beside the deviation: it is exact for eps 0

As in Caffe, a bottom N x C gives a top N x C x 1 x 1.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from layermem import ops
from layermem.errors import InputError
from layermem.layers.activation import elementwise_overlays
from layermem.layers.base import CAFFE_VALUE_BYTES, Y_OVER_X, Layer, Step, Tensor, layer


@layer("MVN")
class MVN(Layer):
    family = "normalization"
    caffe_reads = "xy"
    record: ops.MVN
    inplace = True

    def setup(self) -> None:
        p, x = self.param.mvn_param, self.bottoms[0]
        if len(x.shape) not in (2, 4):
            raise InputError(f"has a bottom of {len(x.shape)} axes ({x}); MVN takes N x C x H x W: Reshape it first")
        y = Tensor((*x.shape, 1, 1)[:4])
        self.tops = (y,)
        self.record = ops.MVN(y, p.across_channels, p.normalize_variance, p.eps)
        if p.normalize_variance:
            self.stash = {"inv_std": self.record.groups}

    @property
    def caffe_state_bytes(self) -> int:
        """Bytes of a mean and a variance of each map, an intermediate blob, and the ones by which sums multiply."""
        n, c, h, w = self.tops[0].shape
        ones = h * w * (c if self.param.mvn_param.across_channels else 1)
        return self.tops[0].nbytes + CAFFE_VALUE_BYTES * (2 * n * c + ones)

    def forward(self) -> Step:
        flops = (6 if self.record.normalize else 2) * self.tops[0].count
        return Step("forward", ("x0",), ("y0", *self.stash), overlays=(Y_OVER_X,), flops=flops)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        if "dx0" not in wants:
            return ()
        reads = ("y0", *self.stash) if self.record.normalize else ()
        overlays = elementwise_overlays("dx0", "dy0", *reads[:1])
        flops = (7 if self.record.normalize else 2) * self.tops[0].count
        return (Step("backward", (*reads, "dy0"), ("dx0",), overlays=overlays, flops=flops),)
