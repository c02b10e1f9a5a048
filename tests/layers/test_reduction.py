"""Reduction and ArgMax by closed form."""

import numpy as np
import pytest

from layermem.errors import InputError
from tests.cases.base import SHAPE_AND_AXIS
from tests.layers.harness import check_gradients, forward, layer_of


def values(shape):
    return np.random.default_rng(4).permutation(int(np.prod(shape))).reshape(shape) * 0.1 - 1.03


@pytest.mark.parametrize(
    "operation, formula",
    [
        ("SUM", lambda rows: rows.sum(1)),
        ("MEAN", lambda rows: rows.mean(1)),
        ("ASUM", lambda rows: abs(rows).sum(1)),
        ("SUMSQ", lambda rows: (rows**2).sum(1)),
    ],
)
@pytest.mark.parametrize("shape, axis", SHAPE_AND_AXIS)
@pytest.mark.parametrize("coeff", [1, -2.5])
def test_reduction_of_all_axes_from_one_on(operation, formula, axis, shape, coeff):
    x = values(shape)
    layer = layer_of(
        f'type: "Reduction" reduction_param {{ operation: {operation} axis: {axis} coeff: {coeff} }}', shape
    )
    leading = shape[:axis]
    assert layer.tops[0].shape == leading
    expected = coeff * formula(x.reshape(int(np.prod(leading)), -1)).reshape(leading)
    run = check_gradients(layer, x)
    np.testing.assert_allclose(run.arrays["y0"], expected)


@pytest.mark.parametrize("operation, reads", [("SUM", 0), ("MEAN", 0), ("ASUM", 1), ("SUMSQ", 1)])
def test_a_plain_sum_needs_no_activation_for_its_gradient(operation, reads):
    layer = layer_of(f'type: "Reduction" reduction_param {{ operation: {operation} }}', (2, 3))
    (step,) = layer.backward(["dx0"])
    assert step.reads == (*["x0"] * reads, "dy0")


def argmax(settings, x):
    layer = layer_of(f'type: "ArgMax" argmax_param {{ {settings} }}', x.shape)
    return forward(layer, x).arrays["y0"]


def test_argmax_of_each_item_counts_places_in_caffes_order():
    x = np.zeros((2, 3, 2, 2))
    x[0, 1, 0, 1], x[0, 2, 1, 1], x[1, 0, 1, 0] = 5, 4, 7
    assert argmax("top_k: 2", x)[0].reshape(-1).tolist() == [5, 11]
    both = argmax("top_k: 2 out_max_val: true", x)
    assert both.shape == (2, 2, 2, 1)
    assert both[0, :, :, 0].tolist() == [[5, 11], [5, 4]]
    assert both[1, :, 0, 0].tolist() == [2, 7]


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1])
def test_argmax_along_an_axis(axis):
    x = values((3, 4, 2, 5))
    np.testing.assert_array_equal(argmax(f"axis: {axis}", x), x.argmax(axis, keepdims=True))
    np.testing.assert_array_equal(argmax(f"axis: {axis} out_max_val: true", x), x.max(axis, keepdims=True))
    falling = np.flip(np.sort(x, axis), axis).take([0, 1], axis)
    np.testing.assert_array_equal(argmax(f"axis: {axis} out_max_val: true top_k: 2", x), falling)


def test_argmax_names_the_last_of_equal_elements():
    assert argmax("top_k: 2", np.array([[1.0, 3, 3, 0, 3]]))[0, 0].tolist() == [4, 2]


@pytest.mark.parametrize("settings", ["top_k: 0", "top_k: 4", "top_k: 3 axis: 0"])
def test_argmax_refuses_more_than_there_are(settings):
    with pytest.raises(InputError, match="use top_k from 1 to"):
        argmax(settings, np.zeros((2, 3)))


def test_argmax_has_no_gradient():
    assert tuple(layer_of('type: "ArgMax"', (2, 3)).backward(["dx0"])) == ()
