"""Images as arrays: Datums, JPEG and PNG bytes, and resizing.

An image is [C,H,W], uint8 or float32; colours are in the order of Caffe and OpenCV: blue, green, red.
"""

from __future__ import annotations

import io
from functools import lru_cache

import numpy as np
from PIL import Image, UnidentifiedImageError

from layermem.errors import InputError
from layermem.proto.schema import Message

GRAY_MODES = ("1", "L", "LA")


def datum_image(datum: Message, *, color: bool | None = None) -> np.ndarray:
    """The image of a Datum.  `color` decodes an encoded one to three channels (True) or one (False)."""
    if datum.encoded:
        return decode(datum.data, color=color)
    shape = (datum.channels, datum.height, datum.width)
    if datum.data:
        image = np.frombuffer(datum.data, np.uint8)
    else:
        image = np.array(datum.float_data, np.float32)
    if min(shape) < 1 or image.size != shape[0] * shape[1] * shape[2]:
        raise InputError(f"holds a Datum of {image.size} values with shape {'x'.join(map(str, shape))}; write it again")
    if color is not None and shape[0] != (3 if color else 1):
        flag, channels = ("force_color", 3) if color else ("force_gray", 1)
        raise InputError(
            f"is a raw image of {shape[0]} channels, and {flag} needs {channels}; encode it, or remove {flag}"
        )
    return image.reshape(shape)


def decode(raw: bytes, *, color: bool | None = None) -> np.ndarray:
    """Decode JPEG, PNG or another format of Pillow to uint8; with `color` None the channels are those of the file."""
    try:
        with Image.open(io.BytesIO(raw)) as image:
            return _as_array(image, color)
    except UnidentifiedImageError:
        raise InputError("holds an image in a format that Pillow cannot decode; convert it to JPEG or PNG") from None
    except (OSError, SyntaxError, ValueError) as error:
        raise InputError(f"holds a damaged image ({error}); write it again") from None


def _as_array(image: Image.Image, color: bool | None) -> np.ndarray:
    if image.mode.startswith(("I", "F")):
        raise InputError(f"holds an image of mode {image.mode}; save it with 8 bits per channel")
    if color is None:
        color = image.mode not in GRAY_MODES
        mode = "RGBA" if image.mode == "RGBA" else "RGB"
    else:
        mode = "RGB"
    pixels = np.asarray(image.convert(mode if color else "L"))
    if not color:
        return pixels[None]
    order = [2, 1, 0, 3][: pixels.shape[2]]
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[order])


def resize(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Bilinear interpolation between pixel centres, without smoothing, rounded to uint8 as OpenCV does for Caffe."""
    if image.shape[1:] == (height, width):
        return image
    top, bottom, down = _axis(image.shape[1], height)
    left, right, across = _axis(image.shape[2], width)
    x = image.astype(np.float32)
    rows = x[:, top] * (1 - down)[:, None] + x[:, bottom] * down[:, None]
    resized = rows[:, :, left] * (1 - across) + rows[:, :, right] * across
    clipped: np.ndarray = np.clip(np.rint(resized), 0, 255).astype(np.uint8)
    return clipped


@lru_cache(maxsize=64)
def _axis(old: int, new: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each new pixel: the two old pixels around its centre, and the weight of the second."""
    centre = np.clip((np.arange(new) + 0.5) * (old / new) - 0.5, 0, old - 1)
    low = np.floor(centre).astype(np.int64)
    return low, np.minimum(low + 1, old - 1), (centre - low).astype(np.float32)
