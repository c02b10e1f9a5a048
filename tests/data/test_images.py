import io

import numpy as np
import pytest
from PIL import Image

from layermem.data.images import datum_image, decode, resize
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


@pytest.mark.parametrize(
    "raw", [b"", b"not an image", encoded(images(1)[0].transpose(1, 2, 0))[:70]], ids=["empty", "text", "cut short"]
)
def test_bytes_that_are_no_image_are_refused(raw):
    with pytest.raises(InputError, match=r"that Pillow cannot decode|a damaged image .image file is truncated"):
        decode(raw)


def test_sixteen_bits_a_channel_are_refused():
    with pytest.raises(InputError, match="8 bits per channel"):
        decode(encoded(np.zeros((2, 2), np.uint16)))


def test_a_datum_that_lies_about_its_size_is_refused():
    wrong = datum(images(1)[0])
    wrong.height += 1
    with pytest.raises(InputError, match="Datum of 90 values with shape 3x7x5"):
        datum_image(wrong)


@pytest.mark.parametrize(("color", "flag"), [(True, "force_color"), (False, "force_gray")])
def test_a_raw_datum_cannot_be_forced_into_other_channels(color, flag):
    with pytest.raises(InputError, match=flag):
        datum_image(datum(images(1, channels=2)[0]), color=color)


def by_the_formula(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Bilinear between pixel centres, a pixel at a time."""
    channels, old_h, old_w = image.shape
    out = np.zeros((channels, height, width))
    for c in range(channels):
        for i in range(height):
            for j in range(width):
                y = min(max((i + 0.5) * old_h / height - 0.5, 0), old_h - 1)
                x = min(max((j + 0.5) * old_w / width - 0.5, 0), old_w - 1)
                y0, x0 = int(y), int(x)
                y1, x1 = min(y0 + 1, old_h - 1), min(x0 + 1, old_w - 1)
                a, b = y - y0, x - x0
                top = image[c, y0, x0] * (1 - b) + image[c, y0, x1] * b
                bottom = image[c, y1, x0] * (1 - b) + image[c, y1, x1] * b
                out[c, i, j] = top * (1 - a) + bottom * a
    return out


@pytest.mark.parametrize("size", [(6, 5), (3, 2), (12, 11), (1, 1), (7, 3)])
def test_resizing_is_bilinear_between_pixel_centres(size):
    image = images(1)[0]
    found = resize(image, *size)
    assert found.dtype == np.uint8 and found.shape == (3, *size)
    assert np.abs(found - by_the_formula(image.astype(float), *size)).max() <= 0.501
