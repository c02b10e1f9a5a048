"""Upsample: numbers by hand, and refusals."""

import numpy as np
import pytest

from layermem.errors import InputError
from tests.layers.harness import backward, forward, layer_of


def test_every_pixel_comes_scale_times_along_both_axes_and_gets_the_sum_back():
    layer = layer_of('type: "Upsample" upsample_param { scale: 2 }', (1, 1, 1, 2))
    run = forward(layer, np.array([[[[1.0, 2]]]]))
    np.testing.assert_array_equal(run.arrays["y0"][0, 0], [[1, 1, 2, 2], [1, 1, 2, 2]])
    backward(run, ("dx0",), np.arange(8.0).reshape(1, 1, 2, 4))
    np.testing.assert_array_equal(run.arrays["dx0"][0, 0], [[0 + 1 + 4 + 5, 2 + 3 + 6 + 7]])


@pytest.mark.parametrize(
    "settings, shapes, remedy",
    [
        ("scale: 0", [(1, 2, 3, 4)], "use 1 or more"),
        ("scale: 2", [(1, 2, 3)], "Upsample takes N x C x H x W: Reshape it first"),
        ("scale: 2", [(1, 2, 3, 4), (1, 2, 3, 5)], "give the mask of the Pooling of that size"),
        ("scale_h: 0", [(1, 2, 3, 4)] * 2, "has a top of 0 pixels along axis h"),
        ("upsample_h: 4", [(1, 2, 3, 4)], "has upsample_h and no mask"),
    ],
)
def test_an_impossible_upsampling_is_refused_with_a_remedy(settings, shapes, remedy):
    with pytest.raises(InputError, match=remedy):
        layer_of(f'type: "Upsample" upsample_param {{ {settings} }}', *shapes)


def test_a_mask_says_where_each_pixel_goes_and_of_several_the_last_stays():
    layer = layer_of('type: "Upsample"', (1, 1, 1, 3), (1, 1, 1, 3))  # the scale with a mask is 2
    run = forward(layer, np.array([[[[1.0, 2, 3]]]]), np.array([[[[4.0, 11, 4]]]]))
    np.testing.assert_array_equal(run.arrays["y0"][0, 0], [[0, 0, 0, 0, 3, 0], [0, 0, 0, 0, 0, 2]])
    backward(run, ("dx0",), np.arange(12.0).reshape(1, 1, 2, 6))
    np.testing.assert_array_equal(run.arrays["dx0"].ravel(), [4, 11, 4])


def test_it_undoes_the_pooling_that_gives_its_mask():
    pool = layer_of('type: "Pooling" top: "y" top: "m" pooling_param { kernel_size: 2 stride: 2 }', (2, 3, 5, 7))
    x = np.random.default_rng(0).standard_normal((2, 3, 5, 7))
    pooled = forward(pool, x)
    up = layer_of('type: "Upsample" upsample_param { scale: 2 pad_out_h: true pad_out_w: true }', *[(2, 3, 3, 4)] * 2)
    y = forward(up, pooled.arrays["y0"], pooled.arrays["y1"]).arrays["y0"]
    assert ((y == x) | (y == 0)).all() and np.count_nonzero(y) == 2 * 3 * 3 * 4


@pytest.mark.parametrize("index", [-1, 4, np.nan])
def test_an_index_outside_of_the_top_is_refused(index):
    layer = layer_of('type: "Upsample"', (1, 1, 1, 1), (1, 1, 1, 1))
    with pytest.raises(InputError, match=r"reads index .* in its mask, but its top has 2 x 2 pixels; use the scale of"):
        forward(layer, np.ones((1, 1, 1, 1)), np.full((1, 1, 1, 1), index))
