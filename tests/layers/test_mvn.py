"""MVN: means and deviations by hand, Caffe's gradient, memory, refusals."""

import numpy as np
import pytest

from layermem.errors import InputError
from tests.cases.base import OTHER_RANKS
from tests.layers.harness import backward, check_gradients, forward, layer_of, nbytes


def mvn(settings, *shapes):
    return layer_of(f'type: "MVN" mvn_param {{ {settings} }}', *shapes)


MAPS = np.array([[[1.0, 3], [5, 7]], [[0, 0], [0, 8]]]).reshape(1, 2, 2, 2)


def test_every_map_has_mean_0_and_variance_1():
    run = forward(mvn("eps: 0", MAPS.shape), MAPS)
    root = np.sqrt(5.0)  # the variances are 5 and 12
    np.testing.assert_allclose(run.arrays["y0"][0, 0], np.array([[-3, -1], [1, 3]]) / root)
    np.testing.assert_allclose(run.arrays["y0"][0, 1], np.array([[-2, -2], [-2, 6]]) / np.sqrt(12))
    np.testing.assert_allclose(run.arrays["inv_std"], [1 / root, 1 / np.sqrt(12)])


def test_without_the_variance_the_mean_alone_is_removed():
    run = forward(mvn("normalize_variance: false", MAPS.shape), MAPS)
    np.testing.assert_array_equal(run.arrays["y0"][0], [[[-3, -1], [1, 3]], [[-2, -2], [-2, 6]]])


def test_across_channels_an_image_has_one_mean():
    run = forward(mvn("normalize_variance: false across_channels: true", MAPS.shape), MAPS)
    np.testing.assert_array_equal(run.arrays["y0"], MAPS - 3)


def test_eps_is_added_to_the_deviation_not_to_the_variance():
    run = forward(mvn("eps: 2", MAPS.shape), MAPS)
    np.testing.assert_allclose(run.arrays["y0"][0, 0, 1, 1], 3 / (np.sqrt(5) + 2))


def test_a_map_of_equal_numbers_is_0_and_so_is_its_gradient_for_equal_dy():
    x = np.full((1, 1, 2, 2), 7.0)
    run = forward(mvn("", x.shape), x)
    backward(run, ("dx0",), np.ones(x.shape))
    np.testing.assert_array_equal(run.arrays["y0"], 0 * x)
    np.testing.assert_array_equal(run.arrays["dx0"], 0 * x)


def test_the_gradient_is_caffes_which_takes_the_deviation_for_deviation_plus_eps():
    dy = np.array([1.0, 0, 0, 0]).reshape(1, 1, 2, 2)
    run = forward(mvn("eps: 1", dy.shape), MAPS[:, :1])
    backward(run, ("dx0",), dy)
    y, factor = run.arrays["y0"], 1 / (np.sqrt(5) + 1)
    np.testing.assert_allclose(run.arrays["dx0"], (dy - 0.25 - y * (y[0, 0, 0, 0] / 4)) * factor)


@pytest.mark.parametrize("settings", ["", "across_channels: true", "normalize_variance: false"])
def test_gradients(settings):
    x = np.random.default_rng(2).standard_normal((2, 3, 3, 2))
    check_gradients(mvn(settings, x.shape), x)


def test_it_keeps_one_number_for_each_mean_or_none():
    shape = (3, 5, 4, 4)
    assert nbytes(mvn("", shape)) == 4 * 15
    assert nbytes(mvn("across_channels: true", shape)) == 4 * 3
    it = mvn("normalize_variance: false", shape)
    assert nbytes(it) == 0 and [step.reads for step in it.backward(("dx0",))] == [("dy0",)]


def test_a_bottom_of_two_axes_gives_a_top_of_four_as_in_caffe():
    x = np.array([[1.0, 3, 5], [0, 0, 6]])
    it = mvn("across_channels: true normalize_variance: false", x.shape)
    assert it.tops[0].shape == (2, 3, 1, 1)
    run = forward(it, x)
    np.testing.assert_array_equal(run.arrays["y0"].reshape(2, 3), [[-2, 0, 2], [-2, -2, 4]])


@pytest.mark.parametrize("shape", OTHER_RANKS)
def test_other_numbers_of_axes_are_refused_with_a_remedy(shape):
    with pytest.raises(InputError, match="Reshape it first"):
        mvn("", shape)
