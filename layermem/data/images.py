"""Images as arrays: Datums, JPEG and PNG bytes, and resizing.

An image is [C,H,W], uint8 or float32; colours are in the order of Caffe and OpenCV: blue, green, red.  Conversion to
gray and resizing give the same numbers as OpenCV, which Caffe uses: integer arithmetic with weights of 11 to 15 bits.
As OpenCV does, files are turned as their EXIF orientation says, and of 16 bits per channel the upper 8 are taken.

source  OpenCV 4 imgproc/resize.cpp (HResizeLinear, VResizeLinear), imgcodecs/utils.cpp (BGR2Gray, CMYK2BGR),
        imgproc/color.hpp; libpng pngrtran.c (png_do_rgb_to_gray)
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from PIL import Image, UnidentifiedImageError

from layermem.errors import InputError
from layermem.proto.schema import Message

GRAY_MODES = ("1", "L", "LA")
# Formats decoded in this process.  Others are refused: for EPS, Pillow would run a PostScript interpreter on user data.
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
# Weights of blue, green and red by file format, the bits of their sum, and whether the result is rounded.
GRAY_WEIGHTS = {"PNG": ((3737, 19234, 9797), 15, False), "WEBP": ((3735, 19235, 9798), 15, True)}
OTHER_GRAY_WEIGHTS = ((1868, 9617, 4899), 14, True)
GRAY_ROWS = 64  # at a time, since their sums take many times the bytes of the pixels
DEEP_MODES = ("I;16", "I;16B", "I;16L", "I;16N")  # gray of 16 bits
DEEP_FORMATS = ("PNG", "PPM")  # whose mode I has 16 bits
EXIF_ORIENTATION = 0x112  # of which 1 is upright, 2 to 4 are mirrored or upside down, and 5 to 8 lie on their side
PIXEL_BYTES = 12  # of a pixel while it is decoded, measured: four in Pillow, and the rest in copies of three
RESIZE_BITS = 11  # fraction bits of the weights of a resize
Cut = Callable[[int, np.ndarray], np.ndarray]  # of image i of a batch, the part that is kept when the next is decoded


def whole(index: int, image: np.ndarray) -> np.ndarray:
    """A Cut that keeps all of it."""
    return image


def datum_image(datum: Message, *, color: bool | None = None) -> np.ndarray:
    """The image of a Datum.  `color` decodes an encoded image to three channels (True) or one (False); with None it is
    as stored, not turned either.  A raw one keeps its channels.  All this is as in Caffe."""
    if datum.encoded:
        return decode(datum.data, color=color, turned=color is not None)
    shape = (datum.channels, datum.height, datum.width)
    if datum.data:
        image = np.frombuffer(datum.data, np.uint8)
    else:
        image = np.array(datum.float_data, np.float32)
    if min(shape) < 1 or image.size != shape[0] * shape[1] * shape[2]:
        raise InputError(f"holds a Datum of {image.size} values with shape {'x'.join(map(str, shape))}; write it again")
    return image.reshape(shape)


def decoding_bytes(raw: bytes) -> int:
    """The bytes that a file, and decode() beside it, take at most; 0 if it is no image."""
    try:
        with Image.open(io.BytesIO(raw), formats=FORMATS) as image:
            return len(raw) + PIXEL_BYTES * image.width * image.height
    except Exception:  # decode() says what is wrong
        return 0


def decode(raw: bytes, *, color: bool | None = None, turned: bool = True, indices: bool = False) -> np.ndarray:
    """Decode an image file of one of FORMATS to uint8; with `color` None the channels are as in the file.

    turned    as its EXIF orientation says
    indices   each pixel is the index of a class: its gray, or its index in the palette of the file
    """
    try:
        with Image.open(io.BytesIO(raw), formats=FORMATS) as image:
            orientation = _orientation(image) if turned else None
            return _turn(_indices(image) if indices else _as_array(image, color), orientation)
    except InputError:
        raise
    except UnidentifiedImageError:
        what = f"holds an image in a format that is not read; convert it to JPEG or PNG (read: {', '.join(FORMATS)})"
        raise InputError(what) from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        largest = f"{Image.MAX_IMAGE_PIXELS or 0:,} pixels"
        raise InputError(f"holds an image far above {largest}, the limit of Pillow; make it smaller") from None
    except Exception as error:  # decoders raise many kinds for damaged data
        raise InputError(f"holds a damaged image ({error}); write it again") from None


def _orientation(image: Image.Image) -> int | None:
    """The EXIF orientation, where Pillow does not follow it itself."""
    try:
        return None if image.format == "TIFF" else image.getexif().get(EXIF_ORIENTATION)
    except Exception:  # damaged metadata, of which the pixels are independent
        return None


def _turn(image: np.ndarray, orientation: int | None) -> np.ndarray:
    """The image upright, given its EXIF orientation."""
    if orientation in (5, 6, 7, 8):
        image = image.transpose(0, 2, 1)
    if orientation in (3, 4, 7, 8):
        image = image[:, ::-1]
    if orientation in (2, 3, 6, 7):
        image = image[:, :, ::-1]
    return np.ascontiguousarray(image)


def _as_array(image: Image.Image, color: bool | None) -> np.ndarray:
    if image.mode in DEEP_MODES or (image.mode == "I" and image.format in DEEP_FORMATS):
        gray = (np.asarray(image).astype(np.int64) >> 8).astype(np.uint8)
        return np.stack([gray] * (3 if color else 1))
    if image.mode.startswith(("I", "F")):
        raise InputError(f"holds an image of mode {image.mode}; save it with 8 bits per channel")
    mode = "RGBA" if color is None and _has_alpha(image) else "RGB"
    if color is None:
        color = image.mode not in GRAY_MODES
    if not color:
        return _as_gray(image)[None]
    planes = (np.asarray(image.convert(mode)) if mode == "RGBA" else _rgb(image)).transpose(2, 0, 1)
    return np.ascontiguousarray(planes[::-1] if mode == "RGB" else planes[[2, 1, 0, 3]])


def _has_alpha(image: Image.Image) -> bool:
    """Whether OpenCV reads four channels: with alpha, or from a PNG of colours of which some are transparent."""
    is_keyed = image.format == "PNG" and image.mode in ("P", "RGB") and "transparency" in image.info
    return image.mode == "RGBA" or is_keyed


def _indices(image: Image.Image) -> np.ndarray:
    """[1,H,W]: the index of a class at each pixel."""
    if image.mode == "P":
        return np.array(image)[None]
    if image.mode not in GRAY_MODES and not image.mode.startswith(("I", "F")):
        raise InputError(
            f"holds an image of mode {image.mode}, where each pixel must be the index of a class; save it in gray, or "
            "with a palette"
        )
    return _as_array(image, False)


def _as_gray(image: Image.Image) -> np.ndarray:
    """[H,W]: the stored luma of a JPEG, otherwise a weighted sum of the colours."""
    if image.format == "JPEG":
        image.draft("L", None)  # decodes only the luma
    if image.mode in GRAY_MODES:
        return np.asarray(image.convert("L"))
    weights, bits, rounded = GRAY_WEIGHTS.get(image.format or "", OTHER_GRAY_WEIGHTS)
    pixels = _rgb(image)
    gray = np.empty(pixels.shape[:2], np.uint8)
    for first in range(0, len(pixels), GRAY_ROWS):
        rows = pixels[first : first + GRAY_ROWS].astype(np.int32)
        total = rows @ np.array(weights[::-1], np.int32) + (1 << (bits - 1) if rounded else 0)
        gray[first : first + GRAY_ROWS] = total >> bits
    return gray


def _rgb(image: Image.Image) -> np.ndarray:
    """[H,W,3]: red, green and blue; of a JPEG in cyan, magenta, yellow and black by OpenCV's arithmetic."""
    if (image.format, image.mode) != ("JPEG", "CMYK"):
        return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))
    inks = 255 - np.asarray(image).astype(np.int32)  # as in the file: Pillow inverts them
    black = inks[:, :, 3:]
    rgb: np.ndarray = (black - ((255 - inks[:, :, :3]) * black >> 8)).astype(np.uint8)
    return rgb


def resize(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """cv2.resize of a uint8 image with INTER_LINEAR: bilinear between pixel centres, without smoothing."""
    old_height, old_width = image.shape[1:]
    if (old_height, old_width) == (height, width):
        return image
    resized: np.ndarray
    if (old_height, old_width) == (2 * height, 2 * width):  # OpenCV takes the mean of the four
        x = image.astype(np.int32)
        resized = x[:, ::2, ::2] + x[:, ::2, 1::2] + x[:, 1::2, ::2] + x[:, 1::2, 1::2]
        return ((resized + 2) >> 2).astype(np.uint8)
    left, right, at_left, at_right = _axis(old_width, width, True)
    top, bottom, at_top, at_bottom = _axis(old_height, height, False)
    needed, places = np.unique(np.concatenate([top, bottom]), return_inverse=True)
    image = np.take(image, needed, 1)
    rows = np.take(image, left, 2) * at_left  # int32
    rows += np.take(image, right, 2) * at_right
    rows >>= 4
    resized, below = np.take(rows, places[:height], 1), np.take(rows, places[height:], 1)
    resized *= at_top[:, None]
    resized >>= 16
    below *= at_bottom[:, None]
    below >>= 16
    resized += below
    return ((resized + 2) >> 2).astype(np.uint8)


@lru_cache(maxsize=64)
def _axis(old: int, new: int, clamp: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return, for each new pixel, the two old pixels around its centre and their integer weights, of RESIZE_BITS.

    clamp   a new pixel beyond the first or last centre equals that pixel; otherwise it is a sum with rounded weights
    """
    centre = ((np.arange(new) + 0.5) * (1 / (new / old)) - 0.5).astype(np.float32)
    low = np.floor(centre).astype(np.int64)
    share = centre - low.astype(np.float32)
    if clamp:
        share[(low < 0) | (low >= old - 1)] = 0
    one = np.float32(1 << RESIZE_BITS)
    weights = (np.rint((1 - share) * one).astype(np.int32), np.rint(share * one).astype(np.int32))
    return np.clip(low, 0, old - 1), np.clip(low + 1, 0, old - 1), *weights
