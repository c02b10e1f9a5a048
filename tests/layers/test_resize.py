"""Interp and Crop: grids by hand, sizes of the forks, gradients, refusals."""

import numpy as np
import pytest

from layermem.errors import InputError
from tests.layers.harness import check_gradients, forward, layer_of


def interp(settings, *shapes):
    return layer_of(f'type: "Interp" interp_param {{ {settings} }}', *shapes)


def crop(settings, *shapes):
    return layer_of(f'type: "Crop" crop_param {{ {settings} }}', *shapes)


def random(*shape):
    return np.random.default_rng(8).standard_normal(shape)


# ---- Interp ---------------------------------------------------------------------------------------------------------


def test_corners_lie_on_corners_and_all_between_on_straight_lines():
    x = np.array([[0.0, 3], [6, 9]]).reshape(1, 1, 2, 2)
    y = forward(interp("height: 3 width: 4", x.shape), x).arrays["y0"]
    np.testing.assert_allclose(y[0, 0], [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]])


def test_shrinking_by_a_whole_factor_picks_every_nth_pixel():
    x = random(2, 3, 7, 10)
    y = forward(interp("shrink_factor: 3", x.shape), x).arrays["y0"]
    np.testing.assert_array_equal(y, x[:, :, ::3, ::3])


def test_zooming_back_by_that_factor_gives_the_pixels_again():
    x = random(1, 2, 3, 4)
    big = forward(interp("zoom_factor: 5", x.shape), x).arrays["y0"]
    assert big.shape == (1, 2, 11, 16)
    np.testing.assert_allclose(big[:, :, ::5, ::5], x)


def test_the_same_size_is_a_copy_to_the_bit():
    x = random(2, 3, 713, 3).astype("float32")
    run = forward(interp("height: 713 width: 3", x.shape), x, dtype="float32")
    np.testing.assert_array_equal(run.arrays["y0"], x)


def test_negative_padding_crops_before_the_grid_is_laid():
    x = random(1, 1, 6, 7)
    y = forward(interp("pad_beg: -1 pad_end: -2 height: 5 width: 5", x.shape), x).arrays["y0"]
    inner = np.ascontiguousarray(x[:, :, 1:4, 1:5])
    np.testing.assert_allclose(y, forward(interp("height: 5 width: 5", inner.shape), inner).arrays["y0"])


def test_one_row_out_is_the_first_row():
    x = random(1, 2, 4, 3)
    y = forward(interp("height: 1 width: 3", x.shape), x).arrays["y0"]
    np.testing.assert_array_equal(y, x[:, :, :1])


@pytest.mark.parametrize(
    "settings, shapes, out",
    [
        ("zoom_factor: 8", [(1, 2, 41, 41)], (321, 321)),  # DeepLab
        ("shrink_factor: 8", [(1, 2, 321, 321)], (41, 41)),
        ("height: 713 width: 500", [(1, 2, 90, 90)], (713, 500)),  # PSPNet
        ("shrink_factor: 4 zoom_factor: 3", [(1, 2, 10, 9)], (7, 7)),
        ("zoom_factor: 2 height: 9 width: 9", [(1, 2, 4, 4)], (7, 7)),
        ("shrink_factor: 2 zoom_factor: 2 height: 9 width: 8", [(1, 2, 4, 4)], (9, 8)),
        ("", [(1, 2, 4, 4), (3, 1, 6, 5)], (6, 5)),
        ("height: 3 width: 2", [(1, 2, 4, 4), (3, 1, 6, 5)], (3, 2)),
    ],
)
def test_the_size_comes_from_factors_or_sizes_or_the_second_bottom(settings, shapes, out):
    assert interp(settings, *shapes).tops[0].shape == (1, 2, *out)


@pytest.mark.parametrize(
    "settings",
    [
        "height: 7 width: 9",
        "height: 2 width: 3",
        "height: 1 width: 1",
        "zoom_factor: 3 pad_beg: -1",
        "shrink_factor: 2",
    ],
)
def test_interp_gradients(settings):
    x = random(2, 3, 4, 5)
    check_gradients(interp(settings, x.shape), x)


def test_another_interpolation_of_pspnet_is_refused():
    with pytest.raises(InputError, match=r"interp_type 'nearest_neighbor'.*; use bilinear"):
        interp("height: 3 width: 3 interp_type: 'nearest_neighbor'", (1, 1, 2, 2))


# ---- Crop -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings, like, part",
    [
        ("axis: 0", (2, 3, 4, 5), np.s_[:2, :3, :4, :5]),
        ("", (9, 9, 4, 5), np.s_[:, :, :4, :5]),  # the axes before `axis` need not agree
        ("offset: 1", (3, 4, 4, 5), np.s_[:, :, 1:5, 1:6]),
        ("axis: 1 offset: 0 offset: 1 offset: 2", (3, 4, 3, 3), np.s_[:, :, 1:4, 2:5]),
        ("axis: -1 offset: 3", (3, 4, 5, 2), np.s_[:, :, :, 3:5]),
    ],
)
def test_a_crop_has_the_size_of_the_second_bottom_from_its_offset_on(settings, like, part):
    x = random(3, 4, 5, 6)
    it = crop(settings, x.shape, like)
    run = check_gradients(it, x, np.zeros(like), wants=("dx0",))
    np.testing.assert_array_equal(run.arrays["y0"], x[part])


def test_a_crop_need_not_be_of_images():
    x = random(5, 7)
    np.testing.assert_array_equal(
        forward(crop("axis: 0 offset: 2", x.shape, (3, 4)), x, np.zeros((3, 4))).arrays["y0"], x[2:5, 2:6]
    )


@pytest.mark.parametrize("it", [crop("", (1, 2, 5, 5), (1, 2, 3, 3)), interp("", (1, 2, 5, 5), (1, 2, 3, 3))])
def test_the_second_bottom_lends_its_size_only(it):
    steps = [it.forward(), *it.backward(("dx0", "dx1"))]
    assert [s.writes for s in steps] == [("y0",), ("dx0",)]
    assert not any("x1" in s.reads for s in steps)
    assert it.backward(("dx1",)) == ()


# ---- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings, shapes, remedy",
    [
        ("height: 3 width: 3", [(2, 3)], "N x C x H x W"),
        ("", [(1, 2, 4, 4)], "give height and width"),
        ("height: 3", [(1, 2, 4, 4)], "give height and width"),
        ("", [(1, 2, 4, 4), (1, 2)], "N x C x H x W"),
        ("height: 3 width: 0", [(1, 2, 4, 4)], "at least 1"),
        ("zoom_factor: 0", [(1, 2, 4, 4)], "1 or more"),
        ("zoom_factor: 2 pad_beg: 1", [(1, 2, 4, 4)], "0 or less"),
        ("zoom_factor: 2 pad_beg: -2 pad_end: -2", [(1, 2, 4, 4)], "nearer 0"),
    ],
)
def test_an_impossible_interpolation_is_refused_with_a_remedy(settings, shapes, remedy):
    with pytest.raises(InputError, match=remedy):
        interp(settings, *shapes)


@pytest.mark.parametrize(
    "settings, shapes, remedy",
    [
        ("", [(1, 2, 4, 4)], "has 1 bottom;"),
        ("", [(1, 2, 4, 4), (1, 2)], "same number of axes"),
        ("axis: 4", [(1, 2, 4, 4), (1, 2, 3, 3)], "use -4 to 3"),
        ("axis: 1 offset: 1 offset: 1", [(1, 2, 4, 4), (1, 2, 3, 3)], "one for each, or one"),
        ("offset: 2", [(1, 2, 4, 4), (1, 2, 3, 3)], "smaller offset"),
        ("", [(1, 2, 4, 4), (1, 2, 5, 3)], "smaller second bottom"),
    ],
)
def test_an_impossible_crop_is_refused_with_a_remedy(settings, shapes, remedy):
    with pytest.raises(InputError, match=remedy):
        crop(settings, *shapes)
