"""Upsample: every pixel `scale` x `scale` times, the nearest neighbour of YOLO nets.

    x [N,C,H,W] -> y [N,C,scale H,scale W]
    memory  stashes nothing; backward reads dy only, and sums the copies of each pixel
    source  upsample_layer.cpp of Caffe forks for YOLO v3 (ChenYingpeng/darknet2caffe), UpsampleParameter

SegNet's layer of this name has a second bottom, the mask of a Pooling, which says where each pixel goes; it is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from layermem import ops
from layermem.errors import InputError
from layermem.layers.base import Layer, Step, Tensor, layer


@layer("Upsample")
class Upsample(Layer):
    bottom_range = (1, 2)

    def setup(self) -> None:
        p, x = self.param.upsample_param, self.bottoms[0]
        if len(self.bottoms) == 2:
            raise InputError(
                "has a mask for its second bottom, as in SegNet's Caffe, which layermem does not have; use a "
                "Deconvolution, or one bottom for the nearest neighbour"
            )
        if len(x.shape) != 4:
            raise InputError(
                f"has a bottom of {len(x.shape)} axes ({x}); Upsample takes N x C x H x W: Reshape it first"
            )
        if p.scale < 1:
            raise InputError(f"has scale {p.scale} in its upsample_param; use 1 or more")
        n, c, h, w = x.shape
        self.tops = (Tensor((n, c, p.scale * h, p.scale * w)),)
        self.record = ops.Upsample(x, self.tops[0], p.scale)

    def forward(self) -> Step:
        return Step("forward", ("x0",), ("y0",))

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        return (Step("backward", ("dy0",), ("dx0",), flops=self.tops[0].count),) if "dx0" in wants else ()
