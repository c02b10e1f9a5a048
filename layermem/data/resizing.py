"""A resize_param: the new size of an image, its padding, and the new positions of its boxes.

    WARP                    height x width, whatever the aspect ratio
    FIT_LARGE_SIZE_AND_PAD  the largest image of the same aspect ratio in height x width, with the rest on both sides
    FIT_SMALL_SIZE          the smallest image of the same aspect ratio that covers height x width; all images must have
                            one

Boxes are in fractions of the result.  The padding of an image that is higher than wide is (width - image width) / 2 for
its boxes too; the fork omits the parentheses and so moves the boxes elsewhere.
source  im_transforms.cpp of the SSD fork of Caffe (ApplyResize, UpdateBBoxByResizePolicy)
"""

from __future__ import annotations

import numpy as np

from layermem.data.boxes import CORNERS, UNIT, Boxes, Window
from layermem.data.resampling import resample, saturated
from layermem.errors import InputError
from layermem.layers.data import stated_size
from layermem.proto.schema import Message, enum_name, message_class

ResizeParameter = message_class("ResizeParameter")
PAD_MODES = {"CONSTANT": "constant", "MIRRORED": "reflect", "REPEAT_NEAREST": "edge"}  # modes of np.pad


def resizing_of(p: Message) -> Resizing:
    """The Resizing of a transform_param."""
    stated_size(p)  # raises InputError for a wrong one
    return Resizing(p.resize_param, "transform_param")


class Resizing:
    """The settings of the resize_param `r` in `block`; InputError if it states no size."""

    def __init__(self, r: Message, block: str):
        if not (r.height and r.width):
            raise InputError(f"needs a resize_param with height and width in its {block}")
        self.height, self.width = r.height, r.width
        self.mode, self.pads = enum_name(r, "resize_mode"), PAD_MODES[enum_name(r, "pad_mode")]
        self.fill = np.array(r.pad_value or (0,), np.float32)
        self.interpolations = [_interpolation(number) for number in r.interp_mode] or ["LINEAR"]

    @property
    def stated(self) -> tuple[int, int] | None:
        """Height and width of every image; None if they depend on the images."""
        return None if self.mode == "FIT_SMALL_SIZE" else (self.height, self.width)

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of a resized image, without its padding."""
        if self.mode == "WARP":
            return self.height, self.width
        aspect = np.float32(width) / np.float32(height)
        wider = aspect > np.float32(self.width) / np.float32(self.height)
        if wider == (self.mode == "FIT_LARGE_SIZE_AND_PAD"):
            return max(1, int(np.float32(self.width) / aspect)), self.width
        return self.height, max(1, int(aspect * np.float32(self.height)))

    def image(self, image: np.ndarray, interpolation: str) -> np.ndarray:
        """Resize a uint8 image [C,H,W] and pad it."""
        size = self.size(*image.shape[1:])
        image = resample(image, *size, interpolation)
        if self.mode != "FIT_LARGE_SIZE_AND_PAD" or size == (self.height, self.width):
            return image
        if len(self.fill) not in (1, len(image)):
            raise InputError(
                f"has {len(self.fill)} pad_values and images of {len(image)} channels; give one, or one for each"
            )
        rest = [whole - part for whole, part in zip((self.height, self.width), size)]
        if self.pads != "constant":
            return np.pad(image, [(0, 0), *((each // 2, each - each // 2) for each in rest)], self.pads)  # type: ignore[call-overload,no-any-return]
        padded = np.empty((len(image), self.height, self.width), np.uint8)
        padded[:] = saturated(np.broadcast_to(self.fill, len(image)))[:, None, None]
        top, left = (each // 2 for each in rest)
        padded[:, top : top + size[0], left : left + size[1]] = image
        return padded

    def boxes(self, boxes: Boxes, height: int, width: int) -> Boxes:
        """The boxes of an image of height x width in fractions of the resized one."""
        if self.mode != "FIT_LARGE_SIZE_AND_PAD":
            return boxes
        window = self.window(height, width)
        moved = boxes.copy()
        low, size = np.tile(window[:2], 2), np.tile(window[2:] - window[:2], 2)
        moved[:, CORNERS] = low + np.clip(boxes[:, CORNERS], 0, 1) * size
        return moved

    def window(self, height: int, width: int) -> Window:
        """The window of the resized image that an image of height x width fills."""
        if self.mode != "FIT_LARGE_SIZE_AND_PAD":
            return UNIT
        new_height, new_width = np.float32(self.height), np.float32(self.width)
        aspect = np.float32(width) / np.float32(height)
        shares = np.ones(2, np.float32)  # fractions of the result, along x and y, that the image fills
        if aspect > new_width / new_height:
            shares[1] = new_width / aspect / new_height
        else:
            shares[0] = aspect * new_height / new_width
        return np.concatenate([(1 - shares) / 2, (1 + shares) / 2])


def _interpolation(number: int) -> str:
    """The name of an Interp_mode number."""
    return str(ResizeParameter.DESCRIPTOR.enum_types_by_name["Interp_mode"].values_by_number[number].name)
