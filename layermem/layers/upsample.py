"""Upsample: nearest neighbours, as in YOLO nets; with a mask the inverse of a MAX pooling, as in SegNet.

One bottom
    x [N,C,H,W] -> y [N,C,scale H,scale W], every pixel `scale` x `scale` times
    memory  stashes nothing; backward reads dy only, and sums the copies of each pixel
    source  upsample_layer.cpp of Caffe forks for YOLO v3 (ChenYingpeng/darknet2caffe), UpsampleParameter

Two bottoms
    x [N,C,H,W], mask [N,C,H,W] -> y [N,C,Ho,Wo]: y at index mask of the plane Ho x Wo is x, and 0 elsewhere.  If
    several pixels of x have one index (overlapping windows), y has the last, and each gets the gradient
    Ho = upsample_h, or scale_h H (scale: both axes, 2) less one with pad_out_h; Wo likewise
    memory  stashes nothing; backward reads dy and the mask: x does not outlive forward
    devices reference and cpu
    source  upsample_layer.cpp of SegNet (alexgkendall/caffe-segnet), UpsampleParameter
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from layermem import ops
from layermem.errors import InputError
from layermem.layers.base import Layer, Step, Tensor, layer


@layer("Upsample")
class Upsample(Layer):
    family = "pooling"
    record: ops.Upsample | ops.Unpool
    bottom_range = (1, 2)

    def setup(self) -> None:
        p, x = self.param.upsample_param, self.bottoms[0]
        if len(x.shape) != 4:
            raise InputError(
                f"has a bottom of {len(x.shape)} axes ({x}); Upsample takes N x C x H x W: Reshape it first"
            )
        if len(self.bottoms) == 2:
            self._unpool()
            return
        extra = [field.name for field, _ in p.ListFields() if field.name != "scale"]
        if extra:
            raise InputError(f"has {extra[0]} and no mask; give the mask of a Pooling as its second bottom, or scale")
        if p.scale < 1:
            raise InputError(f"has scale {p.scale} in its upsample_param; use 1 or more")
        n, c, h, w = x.shape
        self.tops = (Tensor((n, c, p.scale * h, p.scale * w)),)
        self.record = ops.Upsample(x, self.tops[0], p.scale)

    def _unpool(self) -> None:
        x, mask = self.bottoms
        if x.shape != mask.shape:
            raise InputError(f"has a bottom of {x} and a mask of {mask}; give the mask of the Pooling of that size")
        h, w = self._size("h", x.shape[2]), self._size("w", x.shape[3])
        self.tops = (Tensor((*x.shape[:2], h, w)),)
        self.record = ops.Unpool(x, self.tops[0])

    def _size(self, axis: str, size: int) -> int:
        """The size of the top along an axis."""
        p = self.param.upsample_param
        stated = getattr(p, f"upsample_{axis}")
        scale = getattr(p, f"scale_{axis}") if p.HasField(f"scale_{axis}") else p.scale if p.HasField("scale") else 2
        out: int = stated or scale * size - getattr(p, f"pad_out_{axis}")
        if out < 1:
            raise InputError(f"has a top of {out} pixels along axis {axis}; use a larger scale, or upsample_{axis}")
        return out

    def forward(self) -> Step:
        return Step("forward", ("x0", "x1")[: len(self.bottoms)], ("y0",))

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        if len(self.bottoms) == 2:
            return (Step("backward", ("x1", "dy0"), ("dx0",)),) if "dx0" in wants else ()
        return (Step("backward", ("dy0",), ("dx0",), flops=self.tops[0].count),) if "dx0" in wants else ()
