"""Loading, resizing and cropping, with numbers worked out by hand."""

import numpy as np
import pytest
from PIL import Image

from layermem.errors import InputError
from layermem.io import load_image, oversample, resize_image


def save(path, mode, pixels):
    image = Image.new(mode, (2, 1))
    image.putdata(pixels)
    image.save(path)
    return path


def test_an_image_is_red_green_blue_in_0_to_1(tmp_path):
    image = load_image(save(tmp_path / "a.png", "RGB", [(255, 51, 0), (0, 102, 255)]))
    assert image.dtype == np.float32 and image.shape == (1, 2, 3)
    np.testing.assert_allclose(image[0], [[1, 0.2, 0], [0, 0.4, 1]], rtol=1e-7)


def test_gray_images_have_three_equal_channels_or_one_and_transparency_is_dropped(tmp_path):
    gray = save(tmp_path / "g.png", "L", [51, 255])
    np.testing.assert_allclose(load_image(gray), [[[0.2] * 3, [1] * 3]], rtol=1e-7)
    np.testing.assert_allclose(load_image(gray, color=False), [[[0.2], [1]]], rtol=1e-7)
    clear = save(tmp_path / "c.png", "RGBA", [(255, 0, 0, 3), (0, 0, 255, 99)])
    np.testing.assert_allclose(load_image(clear), [[[1, 0, 0], [0, 0, 1]]], rtol=1e-7)
    np.testing.assert_allclose(load_image(clear, color=False), [[[0.2125], [0.0721]]], rtol=1e-6)


def test_a_file_that_is_no_image_is_refused_by_name(tmp_path):
    (tmp_path / "a.png").write_text("no image")
    with pytest.raises(InputError, match=r"a\.png: holds an image in a format that is not read; convert it"):
        load_image(tmp_path / "a.png")
    with pytest.raises(InputError, match=r"b\.png"):
        load_image(tmp_path / "b.png")


RAMP = np.array([[[1.0], [3.0], [5.0], [9.0]]], np.float32)  # [1,4,1]


def test_halving_takes_the_mean_of_two_and_doubling_mixes_the_border_with_the_smallest_value():
    assert resize_image(RAMP, (1, 2)).ravel().tolist() == [2, 7]
    # at -1/4, 1/4, 3/4 .. 13/4; the first mixes 3/4 of 1 with 1/4 of the minimum 1, the last 3/4 of 9 with 1/4 of it
    assert resize_image(RAMP, (1, 8)).ravel().tolist() == [1, 1.5, 2.5, 3.5, 4.5, 6, 8, 7]


def test_both_axes_are_resized():
    image = np.array([[0, 2], [4, 10]], np.float32)[:, :, None]
    assert resize_image(image, (1, 1)).tolist() == [[[4]]]
    # rows at 0, 1/2, 1 between the centres of two: 3 of 2 gives at -1/6, 1/2, 7/6
    assert resize_image(image, (3, 2))[1].ravel().tolist() == [2, 6]


def test_two_channels_meet_at_the_first_and_the_last_pixel():
    image = np.concatenate([RAMP, -RAMP], axis=2)
    assert resize_image(image, (1, 7))[..., 0].ravel().tolist() == [1, 2, 3, 4, 5, 7, 9]
    assert resize_image(image, (1, 7))[..., 1].ravel().tolist() == [-1, -2, -3, -4, -5, -7, -9]
    assert resize_image(image, (2, 2))[..., 0].tolist() == [[1, 9], [1, 9]]


def test_the_nearest_pixel_and_a_constant_image():
    assert resize_image(RAMP, (1, 2), interp_order=0).ravel().tolist() == [3, 9]
    assert np.array_equal(resize_image(np.full((2, 2, 3), 7), (3, 1)), np.full((3, 1, 3), 7, np.float32))


def test_the_same_size_is_the_same_image(rng):
    image = rng.random((5, 4, 3)).astype(np.float32)
    np.testing.assert_allclose(resize_image(image, (5, 4)), image, atol=1e-7)


def test_crops_are_corners_and_centre_and_their_mirrors():
    image = np.arange(20, dtype=np.float32).reshape(4, 5, 1)
    crops = oversample([image, image + 100], (2, 2))
    assert crops.shape == (20, 2, 2, 1) and crops.dtype == np.float32
    assert crops[:5, 0, 0, 0].tolist() == [0, 3, 10, 13, 6]  # the centre begins at (1, 1.5), cut to (1, 1)
    assert crops[5:10, 0, :, 0].tolist() == [[1, 0], [4, 3], [11, 10], [14, 13], [7, 6]]
    assert np.array_equal(crops[10:], crops[:10] + 100)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: resize_image(RAMP, (1, 2), interp_order=3), "interp_order 3 is not supported; use 1 .bilinear. or 0"),
        (lambda: resize_image(RAMP[0], (1, 2)), "an array of shape 4x1 has no size 1x2; give an image .H,W,K."),
        (lambda: oversample([RAMP], (2, 2)), "a crop of 2x2 does not fit an image of 1x4; make the crop smaller"),
        (lambda: oversample([], (2, 2)), "there is no image to take crops of; give one"),
    ],
)
def test_impossible_input_is_refused(call, says):
    with pytest.raises(InputError, match=says):
        call()
