"""ROIPooling and PSROIPooling: the maxima, or the means, of a grid of windows over each region of interest.

ROIPooling
x [N,C,H,W], rois [R,5] (item, x1, y1, x2, y2) -> y [R,C,pooled_h,pooled_w]
A region covers the pixels round(spatial_scale corner) of x, both corners included and at least one pixel; window i
of an axis begins at floor(i size / pooled) and ends before ceil((i + 1) size / pooled), clipped to x.  An empty
window gives 0.  Windows are computed in float32 on every device.
memory  stashes the index of each maximum, 4 bytes per output; backward reads dy, these and the rois: x does not
        outlive forward.  Rois get no gradient
source  roi_pooling_layer.cpp of the Fast R-CNN fork of Caffe (rbgirshick/caffe-fast-rcnn), ROIPoolingParameter

PSROIPooling
    x [N,K g g,H,W], rois as above -> y [R,K,g,g],  K = output_dim, g = group_size
    Window (i, j) of channel k is the mean of channel (k g + i) g + j of x.  A region goes from spatial_scale round(y1)
    to spatial_scale (round(y2) + 1), at least 0.1 pixels; a window covers every pixel that it touches, clipped
    to x.  An empty window gives 0
    memory  stashes nothing; backward reads dy and the rois
    source  psroi_pooling_layer.cu of the R-FCN fork of Caffe (daijifeng001/caffe-rfcn), PSROIPoolingParameter
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from layermem import ops
from layermem.errors import InputError
from layermem.layers.base import CAFFE_VALUE_BYTES, Layer, Step, Tensor, layer


@layer("ROIPooling")
class ROIPooling(Layer):
    family = "pooling"
    bottom_forms = ("N,C,H,W", "R,5")
    record: ops.RoiPool
    bottom_range = (2, 2)

    def setup(self) -> None:
        p, (x, rois) = self.param.roi_pooling_param, self.bottoms
        if len(x.shape) != 4:
            raise InputError(f"pools a bottom of {len(x.shape)} axes ({x}); ROIPooling takes 4: N x C x H x W")
        if not rois.shape or rois.count != 5 * rois.shape[0]:
            raise InputError(f"takes its regions from a bottom of {rois}; give R x 5: item, x1, y1, x2, y2")
        if p.pooled_h < 1 or p.pooled_w < 1:
            raise InputError("has no pooled_h or no pooled_w; set both in roi_pooling_param to at least 1")
        if not (math.isfinite(p.spatial_scale) and p.spatial_scale > 0):
            raise InputError(f"has spatial_scale {p.spatial_scale:g}; use a number above 0, such as 0.0625")
        y = Tensor((rois.shape[0], x.shape[1], p.pooled_h, p.pooled_w))
        self.tops = (y,)
        self.stash = {"argmax": y.of("int32")}
        self.record = ops.RoiPool(x, rois, y, p.spatial_scale)

    @property
    def caffe_state_bytes(self) -> int:
        """Bytes of the index of the maximum of each output."""
        return CAFFE_VALUE_BYTES * self.tops[0].count

    def forward(self) -> Step:
        pixels = self.bottoms[0].shape[2] * self.bottoms[0].shape[3]
        flops = self.tops[0].count * max(1, pixels // (self.tops[0].shape[2] * self.tops[0].shape[3]))
        return Step("forward", ("x0", "x1"), ("y0", *self.stash), flops=flops)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        if "dx0" not in wants:
            return ()
        reads = ("x1", *self.stash, "dy0")
        return (Step("backward", reads, ("dx0",), flops=self.bottoms[0].count + self.tops[0].count),)


@layer("PSROIPooling")
class PSROIPooling(Layer):
    family = "pooling"
    bottom_forms = ("N,C,H,W", "R,5")
    record: ops.PsRoiPool
    bottom_range = (2, 2)

    def setup(self) -> None:
        p, (x, rois) = self.param.psroi_pooling_param, self.bottoms
        if not rois.shape or rois.count != 5 * rois.shape[0]:
            raise InputError(f"takes its regions from a bottom of {rois}; give R x 5: item, x1, y1, x2, y2")
        if p.output_dim < 1 or p.group_size < 1:
            raise InputError("has no output_dim or no group_size; set both in psroi_pooling_param to at least 1")
        channels = p.output_dim * p.group_size**2
        if len(x.shape) != 4 or x.shape[1] != channels:
            raise InputError(
                f"pools a bottom of {x}; output_dim {p.output_dim} and group_size {p.group_size} take "
                f"N x {channels} x H x W"
            )
        if not (math.isfinite(p.spatial_scale) and p.spatial_scale > 0):
            raise InputError(f"has spatial_scale {p.spatial_scale:g}; use a number above 0, such as 0.0625")
        y = Tensor((rois.shape[0], p.output_dim, p.group_size, p.group_size))
        self.tops = (y,)
        self.record = ops.PsRoiPool(x, rois, y, p.spatial_scale)

    def forward(self) -> Step:
        return Step("forward", ("x0", "x1"), ("y0",), flops=self.bottoms[0].count)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        if "dx0" not in wants:
            return ()
        return (Step("backward", ("x1", "dy0"), ("dx0",), flops=2 * self.bottoms[0].count),)
