"""Image files beside those of OpenCV 4.6, with libpng 1.6.39 and zlib 1.2.13: their SHA-256 begins as stated."""

import hashlib
import io

import numpy as np
import pytest
from PIL import Image

from layermem.data.encoding import encode
from layermem.data.images import decode
from layermem.errors import InputError

FILES = [
    # height, width, channels: png, jpg, bmp, ppm or pgm
    ((1, 1, 1), "2e4c95c6 f00909fa ddc3ef50 c562b055"),
    ((1, 1, 3), "250759d0 9e15b5b9 68cb0e29 1588433f"),
    ((2, 1, 3), "6fcc7f9b 71abbe2f 4ed83e89 6e468a71"),
    ((1, 3, 1), "add9b68c b0abc67b b43ae63c d3cd949d"),
    ((3, 5, 3), "69c00a61 5d0f8231 717338f2 c881ae28"),
    ((16, 20, 1), "b71488a1 3c2032b3 b804c992 3416e3bc"),
    ((60, 90, 1), "f2c4ed88 3606d1f8 63e90c9c d468b9b5"),
    ((60, 90, 3), "3e78842b 7b56ccf7 770eae65 2fe439df"),
    ((128, 128, 1), "90dc34e9 d8cce655 0670a564 6d3aa05f"),
    ((150, 170, 3), "6624fb22 e846e995 85de31f1 cb2aff10"),
]
PNG = (
    "89504e470d0a1a0a0000000d49484452000000020000000108020000007b40e8dd0000000f49444154081d63541460d092e2000001de007f"
    "712f87bb0000000049454e44ae426082"
)
BMP = (
    "424d3e0000000000000036000000280000000200000001000000010018000000000000000000000000000000000000000000000000000010"
    "21082a4b0000"
)


def pattern(height, width, channels):
    y, x, channel = np.mgrid[0:height, 0:width, 0:channels]
    return ((y * 7 + x * 13 + channel * 50) * (1 + (y + x) % 5) // 3 % 256).astype(np.uint8).transpose(2, 0, 1)


@pytest.mark.parametrize("shape, starts", FILES, ids=str)
def test_files_are_opencvs_byte_for_byte(shape, starts):
    image = pattern(*shape)
    files = [encode(image, ending) for ending in ("png", "JPG", "bmp", "pnm")]
    assert [hashlib.sha256(file).hexdigest()[:8] for file in files] == starts.split()
    assert encode(image, "ppm" if shape[2] == 3 else "pgm") == files[3]
    assert (encode(image, "jpeg"), encode(image, "dib")) == (files[1], files[2])


def test_the_smallest_files_are_these_bytes():
    assert encode(pattern(1, 2, 3), "png").hex() == PNG
    assert encode(pattern(1, 2, 3), "bmp").hex() == BMP


@pytest.mark.parametrize("ending", ["tif", "tiff", "webp", "png", "bmp", "pnm"])
@pytest.mark.parametrize("channels", [1, 3])
def test_files_hold_the_pixels(ending, channels):
    image = pattern(9, 14, channels)
    assert np.array_equal(decode(encode(image, ending), color=channels == 3), image)


def test_what_a_format_cannot_hold_is_refused():
    for ending, channels in (("ppm", 1), ("pgm", 3)):
        with pytest.raises(InputError, match="channels, which its format cannot hold"):
            encode(pattern(2, 2, channels), ending)
    with pytest.raises(InputError, match="cannot be encoded as 'gif' again"):
        encode(pattern(2, 2, 3), "gif")


def test_a_jpeg_in_four_inks_has_opencvs_colours():
    inks = np.dstack([np.full((8, 8), value, np.uint8) for value in (40, 90, 160, 30)])
    file = io.BytesIO()
    Image.fromarray(inks, "CMYK").save(file, "JPEG", quality=100)
    assert decode(file.getvalue())[:, 0, 0].tolist() == [85, 146, 190]
    assert decode(file.getvalue(), color=False)[0, 0, 0] == 152
