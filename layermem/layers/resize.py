"""Interp and Crop: the same channels on another grid of pixels.

Interp  x [N,C,H,W] -> y [N,C,Ho,Wo]: bilinear, corners on corners.  Along each axis y[i] is sampled at
        position i (h - 1) / (Ho - 1) of the h pixels of x that cropping leaves
Crop    y = the part of x, from `offset` on, that has the second bottom's size in the axes from `axis` on
memory  both stash nothing; backward reads dy only.  A second bottom gives only its shape: its values are not read,
        and no gradient flows to it
source  interp_layer.cpp and interp.cpp of the DeepLab and PSPNet forks of Caffe; Caffe crop_layer.cpp
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from layermem import ops
from layermem.errors import InputError
from layermem.layers.base import Layer, Message, Step, Tensor, layer
from layermem.ops import Resampling


@layer("Interp")
class Interp(Layer):
    """The size is the first of these that the net states: one of zoom_factor and shrink_factor; height and width; both
    factors, shrinking first; the size of the second bottom.  pad_beg and pad_end are never positive: they crop."""

    bottom_range = (1, 2)

    def setup(self) -> None:
        p = self.param.interp_param
        x = self.bottoms[0]
        if len(x.shape) != 4:
            raise InputError(f"has a bottom of {len(x.shape)} axes ({x}); Interp takes N x C x H x W: Reshape it first")
        if p.interp_type != "bilinear":
            raise InputError(f"has interp_type '{p.interp_type}', which layermem does not have; use bilinear")
        if p.pad_beg > 0 or p.pad_end > 0:
            raise InputError("has a positive pad_beg or pad_end; Interp can only crop: use 0 or less")
        cropped = [size + p.pad_beg + p.pad_end for size in x.shape[2:]]
        if min(cropped) < 1:
            raise InputError(
                f"crops all of its bottom of {x.shape[2]} x {x.shape[3]}; use a pad_beg or pad_end nearer 0"
            )
        out = self._sizes(p, cropped)
        if min(out) < 1:
            raise InputError(f"has a top of {out[0]} x {out[1]}; use a height and a width of at least 1")
        rows, columns = (Resampling(-p.pad_beg, size, o) for size, o in zip(cropped, out, strict=True))
        y = Tensor((*x.shape[:2], *out))
        self.tops = (y,)
        self.record = ops.Interp(x, y, rows, columns)

    def _sizes(self, p: Message, cropped: list[int]) -> list[int]:
        zoom, shrink = p.HasField("zoom_factor"), p.HasField("shrink_factor")
        if (zoom and p.zoom_factor < 1) or (shrink and p.shrink_factor < 1):
            raise InputError("has a zoom_factor or shrink_factor below 1; use 1 or more")
        if zoom == shrink and p.HasField("height") and p.HasField("width"):
            return [p.height, p.width]
        if zoom or shrink:
            return [((size - 1) // p.shrink_factor) * p.zoom_factor + 1 for size in cropped]
        if len(self.bottoms) == 1:
            raise InputError("states no size; give height and width, or zoom_factor, or a second bottom")
        if len(self.bottoms[1].shape) != 4:
            raise InputError(f"takes its size from a bottom of {self.bottoms[1]}; that must be N x C x H x W")
        return list(self.bottoms[1].shape[2:])

    def forward(self) -> Step:
        return Step("forward", ("x0",), ("y0",), flops=9 * self.tops[0].count)  # three times (1-t) a + t b

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        if "dx0" not in wants:
            return ()
        return (Step("backward", ("dy0",), ("dx0",), flops=9 * self.tops[0].count),)


@layer("Crop")
class Crop(Layer):
    moves_values = True
    bottom_range = (2, 2)

    def setup(self) -> None:
        p = self.param.crop_param
        x, like = self.bottoms
        axis, rank = self.axis(p.axis), len(x.shape)
        if len(like.shape) != rank:
            raise InputError(f"has bottoms of {x} and {like}; give both the same number of axes")
        if len(p.offset) not in (0, 1, rank - axis):
            raise InputError(
                f"gives {len(p.offset)} offsets for the {rank - axis} axes from {axis} on; give one for each, or one"
            )
        stated = list(p.offset) or [0]
        offsets = (0,) * axis + tuple(stated if len(stated) > 1 else stated * (rank - axis))
        shape = (*x.shape[:axis], *like.shape[axis:])
        for i in range(axis, rank):
            if offsets[i] + shape[i] > x.shape[i]:
                raise InputError(
                    f"crops axis {i}, of size {x.shape[i]}, to {shape[i]} from {offsets[i]} on: "
                    f"use a smaller offset or a smaller second bottom"
                )
        y = Tensor(shape)
        self.tops = (y,)
        self.record = ops.Crop(x, y, offsets)

    def forward(self) -> Step:
        return Step("forward", ("x0",), ("y0",))

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        return (Step("backward", ("dy0",), ("dx0",)),) if "dx0" in wants else ()
