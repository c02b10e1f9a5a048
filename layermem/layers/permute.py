"""Layers that reorder the elements of a blob.

    Permute         axis i of y is axis order[i] of x; axes that `order` does not name follow in their order
    ShuffleChannel  interleaves the channels of `group` groups: the first of each, the second of each, ..
    Reorg           C channels of H x W pixels as s^2 C channels of H/s x W/s, or back with `reverse`, in the order of
                    darknet: x as [N, C/s^2, H, s, W, s], with the two s moved before the channels
    memory          stash nothing; backward reads dy only.  An order that moves no element is a `view`: it permits the
                    overlay, and its kernel then does nothing
    source          permute_layer.cpp of the SSD fork of Caffe (weiliu89/caffe), PermuteParameter;
                    shuffle_channel_layer.cpp of farmingyard/ShuffleNet, ShuffleChannelParameter;
                    reorg_layer.cpp of Caffe forks for YOLO v2 (choasup/caffe-yolo9000), ReorgParameter

Axes are Caffe's; memory is channels-last, so the 0 2 3 1 of SSD moves elements, and the Flatten behind it moves them
back.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from layermem import ops
from layermem.errors import InputError
from layermem.layers.base import DX_OVER_DY, Y_OVER_X, Layer, Step, Tensor, layer


class Permutation(Layer):
    """Reorders the axes of x, or of parts into which they are split."""

    record: ops.Permute

    def permute(self, y: Tensor, sizes: Sequence[int], order: Sequence[int]) -> None:
        self.tops = (y,)
        self.record = ops.Permute(self.bottoms[0], y, tuple(sizes), tuple(order))

    def forward(self) -> Step:
        overlays = (Y_OVER_X,) if self.record.view else ()
        return Step("forward", ("x0",), ("y0",), overlays=overlays)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        overlays = (DX_OVER_DY,) if self.record.view else ()
        return (Step("backward", ("dy0",), ("dx0",), overlays=overlays),) if "dx0" in wants else ()


@layer("Permute")
class Permute(Permutation):
    def setup(self) -> None:
        x = self.bottoms[0]
        named = list(self.param.permute_param.order)
        rank = len(x.shape)
        if any(axis >= rank for axis in named) or len(set(named)) < len(named):
            raise InputError(
                f"has order {' '.join(map(str, named))} for a bottom of {rank} axes; name each axis once, "
                f"from 0 to {rank - 1}"
            )
        order = [*named, *(axis for axis in range(rank) if axis not in named)]
        self.permute(Tensor(tuple(x.shape[axis] for axis in order)), x.shape, order)


@layer("ShuffleChannel")
class ShuffleChannel(Permutation):
    def setup(self) -> None:
        x, groups = self.bottoms[0], self.param.shuffle_channel_param.group
        if len(x.shape) < 2:
            raise InputError(f"has a bottom of shape {x}; ShuffleChannel takes at least 2 axes: N x C ...")
        channels = x.shape[1]
        if groups < 1 or channels % groups:
            raise InputError(f"shuffles {groups} groups of {channels} channels; use a group that divides {channels}")
        sizes = (x.shape[0], groups, channels // groups, *x.shape[2:])
        self.permute(x, sizes, (0, 2, 1, *range(3, len(sizes))))


@layer("Reorg")
class Reorg(Permutation):
    """Darknet interprets its input of C x H x W as C/s^2 x s H x s W; trained nets depend on this order."""

    def setup(self) -> None:
        x, p = self.bottoms[0], self.param.reorg_param
        s = p.stride
        if len(x.shape) != 4:
            raise InputError(f"has a bottom of {len(x.shape)} axes ({x}); Reorg takes N x C x H x W: Reshape it first")
        n, c, h, w = x.shape
        if s < 1 or c % (s * s) or (not p.reverse and (h % s or w % s)):
            raise InputError(
                f"has stride {s} for a bottom of {x}; use one whose square divides the channels"
                + ("" if p.reverse else ", and that divides height and width")
            )
        few = c // (s * s)
        if p.reverse:
            self.permute(Tensor((n, few, s * h, s * w)), (n, s, s, few, h, w), (0, 3, 4, 1, 5, 2))
        else:
            self.permute(Tensor((n, s * s * c, h // s, w // s)), (n, few, h, s, w, s), (0, 3, 5, 1, 2, 4))
