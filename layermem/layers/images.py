"""AsImages and FromImages: the bottoms and tops of a convolution of other ranks as images, N x C x H x W.

    blob [items.., C, frames.., H, W] <-> images [frames x items, C, H, W]

items    the axes before the channels        frames   all spatial axes but the last two, in front of the items
H, W     the last two spatial axes; with one spatial axis H is 1, with none both are 1

Caffe has no such types: they are parts of a Convolution, a Deconvolution or an Im2col (composite.py), which states
the shape of the blob in `input_param` and the channels' axis in `convolution_param`.

A ReLU after such a layer is a separate op, because the top between the two has another memory order.

memory   stash nothing; backward reads dy only.  An order that moves no element is a view, as in permute.py
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from layermem.errors import InputError
from layermem.layers.base import Message, Tensor, layer
from layermem.layers.permute import Permutation

Shape = tuple[int, ...]


def image_shape(shape: Shape, axis: int) -> Shape:
    """The blob of `shape`, whose channels are in `axis`, as images."""
    spatial = shape[axis + 1 :]
    h, w = (1, 1, *spatial)[-2:]
    return prod(shape[:axis]) * prod(spatial[:-2]), shape[axis], h, w


def image_order(rank: int, axis: int) -> list[int]:
    """The axes of the blob in the order of the images: frames, items, channels, H, W."""
    first = max(axis + 1, rank - 2)  # the first of H and W
    return [*range(axis + 1, first), *range(axis), axis, *range(first, rank)]


def stated_shape(param: Message, bottom: Tensor) -> Shape:
    """Caffe's shape of a bottom; a layer that is a part states the shape of the original blob."""
    shapes = param.input_param.shape
    return tuple(shapes[0].dim) if shapes else bottom.shape


def check_images(kind: str, bottom: Tensor, shape: Shape, axis: int) -> None:
    """Raise InputError unless the bottom holds the images of a blob of `shape`."""
    if bottom.shape != image_shape(shape, axis):
        raise InputError(
            f"has a bottom of {len(shape)} axes ({Tensor(shape)}) and channels in axis {axis}; {kind} takes "
            "N x C x H x W, with channels in axis 1: Reshape it first"
        )


class Images(Permutation):
    shares_data = shares_diff = True

    def blob(self) -> tuple[Shape, Sequence[int]]:
        """The shape of the blob, and the order of its axes as images."""
        if not self.param.input_param.shape:
            raise InputError(f"has type '{self.type}', which only a Convolution makes, as one of its parts; remove it")
        shape = stated_shape(self.param, self.bottoms[0])
        return shape, image_order(len(shape), self.param.convolution_param.axis)


@layer("AsImages", part=True)
class AsImages(Images):
    def setup(self) -> None:
        shape, order = self.blob()
        self.permute(Tensor(image_shape(shape, self.param.convolution_param.axis)), shape, order)


@layer("FromImages", part=True)
class FromImages(Images):
    def setup(self) -> None:
        shape, order = self.blob()
        back = [order.index(axis) for axis in range(len(order))]
        self.permute(Tensor(shape), [shape[axis] for axis in order], back)
