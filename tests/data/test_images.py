import contextlib
import io
import math
import struct
import tracemalloc
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image

from layermem.data.images import PIXEL_BYTES, datum_image, decode, decoding_bytes, resize
from layermem.errors import InputError
from layermem.proto.schema import Datum
from tests.data.makers import datum, images


def encoded(pixels: np.ndarray, kind: str = "PNG", mode: str | None = None) -> bytes:
    """The file of an image [H,W,3] in red, green, blue, or [H,W] in grey."""
    out = io.BytesIO()
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(out, kind)
    return out.getvalue()


def test_a_raw_datum_is_its_bytes():
    image = images(1)[0]
    assert np.array_equal(datum_image(datum(image)), image)


def test_a_float_datum_is_its_floats():
    image = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)
    found = datum_image(datum(image))
    assert found.dtype == np.float32 and np.array_equal(found, image)


def test_colours_come_blue_first():
    pixels = np.zeros((2, 3, 3), np.uint8)
    pixels[..., 0] = 200  # red
    found = decode(encoded(pixels))
    assert found.shape == (3, 2, 3) and found[2].min() == 200 and found[:2].max() == 0


def test_an_encoded_datum_is_decoded():
    pixels = images(1)[0].transpose(1, 2, 0)
    found = datum_image(Datum(encoded=True, data=encoded(pixels)))
    assert np.array_equal(found, pixels.transpose(2, 0, 1)[::-1])


def test_a_jpeg_is_nearly_the_image_it_was_made_of():
    y, x = np.mgrid[0:32, 0:40]
    pixels = np.stack([y * 4, x * 4, y + x], axis=-1).astype(np.uint8)
    found = decode(encoded(pixels, "JPEG")).astype(int)
    assert np.abs(found - pixels.transpose(2, 0, 1)[::-1]).mean() < 4


def test_grey_stays_grey_unless_colour_is_forced():
    pixels = images(1, channels=1)[0, 0]
    assert np.array_equal(decode(encoded(pixels)), pixels[None])
    forced = decode(encoded(pixels), color=True)
    assert forced.shape == (3, 6, 5) and all(np.array_equal(channel, pixels) for channel in forced)


def test_colour_becomes_grey_when_grey_is_forced():
    pixels = np.full((4, 4, 3), 90, np.uint8)
    assert np.array_equal(decode(encoded(pixels), color=False), np.full((1, 4, 4), 90))


def test_an_image_with_alpha_keeps_it_as_the_last_channel():
    pixels = np.dstack([np.full((2, 2), value, np.uint8) for value in (10, 20, 30, 128)])
    assert decode(encoded(pixels))[:, 0, 0].tolist() == [30, 20, 10, 128]


@pytest.mark.parametrize("mode, key", [("RGB", (10, 20, 30)), ("P", 0)])
def test_a_png_with_a_transparent_colour_has_four_channels_as_in_opencv(mode, key):
    image = Image.new("RGB", (2, 1), (10, 20, 30))
    image.putpixel((1, 0), (40, 50, 60))
    file = io.BytesIO()
    (image.quantize(2) if mode == "P" else image).save(file, "PNG", transparency=key)
    found = decode(file.getvalue())[:, 0].T.tolist()
    assert sorted(found) in ([[30, 20, 10, 0], [60, 50, 40, 255]], [[30, 20, 10, 255], [60, 50, 40, 0]])
    assert decode(file.getvalue(), color=True).shape == (3, 1, 2)


@pytest.mark.parametrize(
    "raw", [b"", b"not an image", encoded(images(1)[0].transpose(1, 2, 0))[:70]], ids=["empty", "text", "cut short"]
)
def test_bytes_that_are_no_image_are_refused(raw):
    with pytest.raises(InputError, match=r"in a format that is not read|a damaged image .image file is truncated"):
        decode(raw)


@pytest.mark.parametrize("kind, channels", [("png", 1), ("png", 3), ("tiff", 1), ("tiff", 3), ("pgm", 1), ("ppm", 3)])
@pytest.mark.parametrize("color", [True, False])
def test_of_sixteen_bits_a_channel_the_upper_eight_are_taken_as_by_opencv(kind, color, channels):
    cv2 = pytest.importorskip("cv2")
    deep = np.random.default_rng(0).integers(0, 65536, (5, 7, channels), np.uint16)
    raw = cv2.imencode(f".{kind}", deep)[1]
    theirs = np.atleast_3d(cv2.imdecode(raw, cv2.IMREAD_COLOR if color else cv2.IMREAD_GRAYSCALE)).transpose(2, 0, 1)
    found = decode(raw.tobytes(), color=color)
    assert found.shape == theirs.shape and np.abs(found.astype(int) - theirs).max() <= (channels > 1)


def test_thirty_two_bits_a_channel_are_refused():
    with pytest.raises(InputError, match="8 bits per channel"):
        decode(encoded(np.zeros((2, 2), np.int32), "TIFF"))


UPRIGHT = np.arange(6, dtype=np.uint8).reshape(2, 3) * 40


def oriented(kind: str, orientation: int, pixels: np.ndarray = UPRIGHT) -> bytes:
    image = Image.fromarray(pixels)
    tags = image.getexif()
    tags[0x112] = orientation
    out = io.BytesIO()
    image.save(out, kind, exif=tags, **({"lossless": True} if kind == "WEBP" else {"quality": 100}))
    return out.getvalue()


@pytest.mark.parametrize(
    "orientation, upright",
    [
        (1, UPRIGHT),
        (2, UPRIGHT[:, ::-1]),
        (3, UPRIGHT[::-1, ::-1]),
        (4, UPRIGHT[::-1]),
        (5, UPRIGHT.T),
        (6, np.rot90(UPRIGHT, -1)),
        (7, np.rot90(UPRIGHT, 2).T),
        (8, np.rot90(UPRIGHT)),
        (9, UPRIGHT),  # no such orientation
    ],
)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_images_are_turned_as_their_exif_orientation_says(kind, orientation, upright):
    raw = oriented(kind, orientation)
    for color in (True, False, None):
        found = decode(raw, color=color)
        assert found.shape[1:] == upright.shape and np.abs(found[0].astype(int) - upright).max() <= 2


def test_an_encoded_datum_is_turned_where_caffe_has_opencv_convert_it():
    made = Datum(encoded=True, data=oriented("JPEG", 6))
    assert datum_image(made).shape == (1, 2, 3)
    assert datum_image(made, color=True).shape == (3, 3, 2) and datum_image(made, color=False).shape == (1, 3, 2)


def test_damaged_metadata_leave_the_pixels():
    raw = oriented("PNG", 6)
    at = raw.index(b"eXIf")
    length = struct.unpack(">I", raw[at - 4 : at])[0]
    body = b"\xff" * length
    damaged = raw[: at + 4] + body + struct.pack(">I", zlib.crc32(b"eXIf" + body)) + raw[at + 8 + length :]
    assert np.array_equal(decode(damaged)[0], UPRIGHT)


def test_a_datum_that_lies_about_its_size_is_refused():
    wrong = datum(images(1)[0])
    wrong.height += 1
    with pytest.raises(InputError, match="Datum of 90 values with shape 3x7x5"):
        datum_image(wrong)


@pytest.mark.parametrize("color", [True, False])
def test_a_raw_datum_keeps_its_channels_as_in_caffe(color):
    (image,) = images(1, channels=2)
    np.testing.assert_array_equal(datum_image(datum(image), color=color), image)


def by_the_formula(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """OpenCV's fixed-point bilinear resize, a pixel at a time: weights of 11 bits, sums of 22 bits cut to 18 and 2."""

    def weights(position: np.float32) -> tuple[int, int, int]:
        low = math.floor(position)
        share = np.float32(position - np.float32(low))
        return low, round(float(np.float32(1) - share) * 2048), round(float(share) * 2048)

    channels, old_h, old_w = image.shape
    out = np.zeros((channels, height, width), np.uint8)
    for i in range(height):
        y, up, down = weights(np.float32((i + 0.5) / (height / old_h) - 0.5))
        for j in range(width):
            x, left, right = weights(np.float32((j + 0.5) / (width / old_w) - 0.5))
            if x < 0 or x >= old_w - 1:
                x, left, right = max(0, min(x, old_w - 1)), 2048, 0
            for c in range(channels):
                rows = [image[c, max(0, min(row, old_h - 1))] for row in (y, y + 1)]
                sums = [int(row[x]) * left + int(row[min(x + 1, old_w - 1)]) * right for row in rows]
                out[c, i, j] = ((up * (sums[0] >> 4) >> 16) + (down * (sums[1] >> 4) >> 16) + 2) >> 2
    return out


@pytest.mark.parametrize("size", [(6, 5), (4, 2), (12, 11), (1, 1), (7, 3), (6, 9)])
def test_resizing_is_bilinear_between_pixel_centres(size):
    image = images(1)[0]
    found = resize(image, *size)
    assert found.dtype == np.uint8 and np.array_equal(found, by_the_formula(image, *size))


def test_half_of_both_sizes_is_the_mean_of_four_pixels():
    image = images(1, height=8, width=6)[0].astype(int)
    four = image[:, ::2, ::2] + image[:, 1::2, ::2] + image[:, ::2, 1::2] + image[:, 1::2, 1::2]
    assert np.array_equal(resize(image.astype(np.uint8), 4, 3), (four + 2) // 4)


def test_resizing_gives_the_pixels_of_opencv(rng):
    cv2 = pytest.importorskip("cv2")
    for number in range(60):
        height, width, new_height, new_width = (int(each) for each in rng.integers(1, 60, 4))
        if number % 10 == 0:
            height, width = 2 * new_height, 2 * new_width
        pixels = rng.integers(0, 256, (height, width, 3), np.uint8)
        expected = cv2.resize(pixels, (new_width, new_height)).transpose(2, 0, 1)
        assert np.array_equal(resize(pixels.transpose(2, 0, 1), new_height, new_width), expected)


@pytest.mark.parametrize("kind", ["png", "bmp", "ppm", "tiff", "webp", "jpg"])
def test_gray_is_that_of_opencv_for_each_format(kind, rng):
    cv2 = pytest.importorskip("cv2")
    y, x = np.mgrid[0:60, 0:70]
    pixels = np.stack([y * 4, x * 3, rng.integers(0, 256, y.shape)], axis=-1).astype(np.uint8)
    raw = cv2.imencode("." + kind, pixels, [cv2.IMWRITE_WEBP_QUALITY, 101] if kind == "webp" else [])[1]
    expected = cv2.imdecode(raw, cv2.IMREAD_GRAYSCALE)
    assert np.array_equal(decode(raw.tobytes(), color=False)[0], expected)


@pytest.mark.parametrize(("kind", "gray"), [("PNG", 75), ("BMP", 76), ("TIFF", 76), ("WEBP", 76)])
def test_gray_of_red_is_cut_in_a_png_and_rounded_elsewhere(kind, gray):
    out = io.BytesIO()
    Image.new("RGB", (2, 2), (254, 0, 0)).save(out, kind, lossless=True)  # 254 * 0.299 = 75.946
    assert decode(out.getvalue(), color=False).ravel().tolist() == [gray] * 4


def test_only_formats_that_run_no_other_program_are_read(monkeypatch):
    out = io.BytesIO()
    Image.new("RGB", (4, 4)).save(out, "EPS")
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *_: pytest.fail("ran Ghostscript"))
    for data in (out.getvalue(), Datum(encoded=True, data=out.getvalue()).data):
        with pytest.raises(InputError, match="in a format that is not read; convert it to JPEG or PNG"):
            decode(data)


@pytest.mark.parametrize("side", [10_000, 30_000])
def test_an_image_of_too_many_pixels_is_refused(side):
    raw = bytearray(encoded(np.zeros((1, 1), np.uint8)))
    raw[16:24] = struct.pack(">II", side, side)
    raw[29:33] = struct.pack(">I", zlib.crc32(raw[12:29]))
    with pytest.raises(InputError, match="above 89,478,485 pixels, the limit of Pillow; make it smaller"):
        decode(bytes(raw))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP", "PPM"])
def test_damaged_images_are_read_or_refused(kind, rng):
    raw = encoded(images(1)[0].transpose(1, 2, 0), kind)
    for _ in range(60):
        bad = bytearray(raw)
        for position in rng.integers(0, len(bad), 3):
            bad[position] = rng.integers(0, 256)
        with contextlib.suppress(InputError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert decode(bytes(bad)).dtype == np.uint8


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_what_decoding_takes_is_expected_by_the_size_of_the_image(kind):
    raw = encoded(images(1, height=300, width=400)[0].transpose(1, 2, 0), kind)
    assert decoding_bytes(raw) == len(raw) + PIXEL_BYTES * 300 * 400
    tracemalloc.start()
    decode(raw, color=True)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most + 4 * 300 * 400 <= decoding_bytes(raw)  # Pillow's own pixels are not traced
    assert decoding_bytes(b"no image") == 0
