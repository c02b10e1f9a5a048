"""Random changes of training images: augment_param, for classifiers.

    area aspect                  a window of at least this share of the image, and of at most this ratio of its sides
                                 to those of the image, either way, is stretched to the size of the image
    rotation                     by up to so many degrees, either way; what comes in at the corners is the mean
    brightness contrast saturation    a factor from 1 - x to 1 + x
    hue                          a turn by up to this share of the circle of colours, either way

An image keeps its size, so all else (crop, mean, mirror) follows as without it.  The numbers of a sample depend on the
seed and its position alone.  Pillow does the arithmetic, so bits may differ between its versions.
"""

from __future__ import annotations

import math

import numpy as np
from PIL import Image, ImageEnhance

from layermem.errors import InputError
from layermem.proto.schema import Message
from layermem.utils.seeds import generator

DOMAINS = {  # field -> least and largest value
    "area": (0.01, 1),
    "aspect": (1, 10),
    "rotation": (0, 180),
    "brightness": (0, 1),
    "contrast": (0, 1),
    "saturation": (0, 1),
    "hue": (0, 0.5),
}
OF_COLOURS = ("saturation", "hue")
FACTORS = (
    ("brightness", ImageEnhance.Brightness),
    ("contrast", ImageEnhance.Contrast),
    ("saturation", ImageEnhance.Color),
)
HUES = 256  # of a circle, in Pillow's HSV


class Augmentation:
    """The changes that an AugmentationParameter asks for.

    key    the seed and the layer
    fill   what comes in at the corners, for each channel or one for all
    """

    def __init__(self, param: Message, key: tuple[int | str, ...], fill: np.ndarray):
        self.param, self.key = param, (*key, "augment")
        self.fill = np.clip(np.rint(fill), 0, 255).astype(int).ravel()
        for field, (least, largest) in DOMAINS.items():
            value = getattr(param, field)
            if not least <= value <= largest:
                raise InputError(
                    f"has augment_param {{ {field}: {value:g} }}; use a number from {least:g} to {largest:g}"
                )

    def change(self, image: np.ndarray, number: int) -> np.ndarray:
        """The image [C,H,W] of sample `number`, changed."""
        random = generator(*self.key, number)
        if image.dtype != np.uint8 or image.shape[0] not in (1, 3):
            what = f"has an image of {image.shape[0]} channels in {image.dtype}"
            raise InputError(f"{what}, and augment_param changes images of 1 or 3 in bytes; remove it")
        p, is_gray = self.param, image.shape[0] == 1
        if is_gray and any(getattr(p, field) for field in OF_COLOURS):
            raise InputError("has a gray image, and augment_param with saturation or hue; remove these")
        picture = Image.fromarray(image[0] if is_gray else np.ascontiguousarray(image[::-1].transpose(1, 2, 0)))
        picture = self._window(picture, random)
        for field, change in FACTORS:
            amount = random.uniform(-1, 1) * getattr(p, field)
            picture = change(picture).enhance(1 + amount) if amount else picture
        turn = random.uniform(-1, 1) * p.hue
        picture = _turned(picture, turn) if turn else picture
        pixels = np.asarray(picture)
        return pixels[None] if is_gray else np.ascontiguousarray(pixels.transpose(2, 0, 1)[::-1])

    def _window(self, picture: Image.Image, random: np.random.Generator) -> Image.Image:
        """A random window of the image, turned, in the size of the image."""
        p, (width, height) = self.param, picture.size
        area, ratio = random.uniform(p.area, 1), math.exp(random.uniform(-1, 1) * math.log(p.aspect))
        wide, high = min(1.0, math.sqrt(area * ratio)), min(1.0, math.sqrt(area / ratio))
        left, top = random.random(2) * (1 - wide, 1 - high)
        angle = math.radians(random.uniform(-1, 1) * p.rotation)
        if wide == high == 1 and not angle:
            return picture
        x, y = (left + wide / 2) * width, (top + high / 2) * height  # the centre of the window
        cos, sin = math.cos(angle), math.sin(angle)
        # from a place of the result, relative to its centre, to one of the image
        across, down = (wide * cos, -high * sin), (wide * sin, high * cos)
        at_x = x - (across[0] * width + across[1] * height) / 2
        at_y = y - (down[0] * width + down[1] * height) / 2
        fill = tuple(np.broadcast_to(self.fill, 3)[::-1].tolist()) if picture.mode == "RGB" else int(self.fill[0])
        matrix = (*across, at_x, *down, at_y)
        return picture.transform(
            picture.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR, fillcolor=fill
        )


def _turned(picture: Image.Image, turn: float) -> Image.Image:
    """The image with its hues turned by a share of the circle."""
    hue, saturation, value = picture.convert("HSV").split()
    turned = (np.asarray(hue).astype(np.int16) + round(turn * HUES)) % HUES
    return Image.merge("HSV", (Image.fromarray(turned.astype(np.uint8)), saturation, value)).convert("RGB")
