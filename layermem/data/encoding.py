"""Image files in the bytes that OpenCV 4 writes, as Caffe's convert_imageset stores them.

    png            rows filtered by SUB and compressed by zlib's run lengths at level 1, as with libpng 1.6
    bmp dib        without resolutions, and with a palette of 256 grays
    ppm pgm pnm    binary
    jpg jpeg jpe   of Pillow, whose quality 95 is OpenCV's
    tif tiff webp  of Pillow: the pixels are those of OpenCV's files, the bytes are others

source  OpenCV 4.6 imgcodecs/grfmt_png.cpp, grfmt_bmp.cpp, grfmt_pxm.cpp; libpng 1.6 pngwutil.c (png_deflate_claim,
        optimize_cmf)
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
from PIL import Image

from layermem.errors import InputError

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
SUB = 1  # the filter of PNG that subtracts the pixel on the left; 0 is none
PNG_CHUNK_BYTES = 8192  # of compressed data in a chunk
SMALL_PNG_BYTES = 16384  # bytes of rows from which on the window of zlib is the largest
LARGEST_WINDOW, LEAST_WINDOW = 15, 9  # bits


def encode(image: np.ndarray, ending: str) -> bytes:
    """The file of `image`, uint8 [C,H,W] in blue, green and red or of one channel, in the format of a name's ending."""
    encoder = ENCODERS.get(ending.lower())
    if encoder is None:
        raise InputError(f"cannot be encoded as '{ending}' again; add --encode-type png, or another of its formats")
    return encoder(image)


def _png(image: np.ndarray) -> bytes:
    channels, height, width = image.shape
    pixels = _pixels(image).reshape(height, width * channels)
    rows = pixels.copy()
    rows[:, channels:] -= pixels[:, :-channels]
    content = np.insert(rows, 0, SUB if width > 1 else 0, axis=1).tobytes()
    data = _deflated(content)
    header = struct.pack(">2I5B", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    parts = [data[start : start + PNG_CHUNK_BYTES] for start in range(0, len(data), PNG_CHUNK_BYTES)]
    chunks = [(b"IHDR", header), *((b"IDAT", part) for part in parts), (b"IEND", b"")]
    return PNG_SIGNATURE + b"".join(_chunk(*chunk) for chunk in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _deflated(content: bytes) -> bytes:
    """`content` compressed, with the window that libpng chooses and states for its size."""
    size, bits = len(content), LARGEST_WINDOW
    while size <= SMALL_PNG_BYTES and bits > LEAST_WINDOW and size + 262 <= 1 << (bits - 1):
        bits -= 1
    encoder = zlib.compressobj(1, zlib.DEFLATED, bits, 8, zlib.Z_RLE)
    data = encoder.compress(content) + encoder.flush()
    if size > SMALL_PNG_BYTES:
        return data
    stated = (data[0] >> 4) + 8
    while stated > 8 and size <= 1 << (stated - 1):
        stated -= 1
    first, level = (data[0] & 15) | (stated - 8) << 4, data[1] & 0xE0
    return bytes([first, level + 31 - (first * 256 + level) % 31]) + data[2:]


def _bmp(image: np.ndarray) -> bytes:
    channels, height, width = image.shape
    rows = np.zeros((height, -(-width * channels // 4) * 4), np.uint8)
    rows[:, : width * channels] = image.transpose(1, 2, 0).reshape(height, -1)[::-1]
    palette = b"" if channels == 3 else b"".join(bytes([gray, gray, gray, 0]) for gray in range(256))
    start = 54 + len(palette)
    file = struct.pack("<2s3I", b"BM", start + rows.nbytes, 0, start)
    return file + struct.pack("<3I2H6I", 40, width, height, 1, 8 * channels, *[0] * 6) + palette + rows.tobytes()


def _portable(*channels: int) -> Callable[[np.ndarray], bytes]:
    def encode_portable(image: np.ndarray) -> bytes:
        count, height, width = image.shape
        if count not in channels:
            raise InputError(f"has {count} channels, which its format cannot hold; add --encode-type png")
        return b"P%d\n%d %d\n255\n" % (5 if count == 1 else 6, width, height) + _pixels(image).tobytes()

    return encode_portable


def _of_pillow(form: str, **settings: object) -> Callable[[np.ndarray], bytes]:
    def encode_by_pillow(image: np.ndarray) -> bytes:
        file = io.BytesIO()
        pixels = _pixels(image)
        Image.fromarray(pixels[:, :, 0] if len(image) == 1 else pixels).save(file, form, **settings)
        return file.getvalue()

    return encode_by_pillow


def _pixels(image: np.ndarray) -> np.ndarray:
    """[H,W,C] in red, green, blue."""
    return np.ascontiguousarray(image[::-1].transpose(1, 2, 0))


ENCODERS: dict[str, Callable[[np.ndarray], bytes]] = {
    "png": _png,
    **dict.fromkeys(("jpg", "jpeg", "jpe"), _of_pillow("JPEG", quality=95)),
    **dict.fromkeys(("bmp", "dib"), _bmp),
    "ppm": _portable(3),
    "pgm": _portable(1),
    "pnm": _portable(1, 3),
    **dict.fromkeys(("tif", "tiff"), _of_pillow("TIFF", compression="tiff_lzw")),
    "webp": _of_pillow("WEBP", lossless=True),
}
