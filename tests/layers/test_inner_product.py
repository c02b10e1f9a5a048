"""InnerProduct: against einsum, in every axis, with the weights as files hold them."""

import numpy as np
import pytest

from layermem.errors import InputError
from tests.cases.inner_product import PLAIN_WEIGHTS
from tests.layers.harness import backward, check_gradients, forward, layer_of


def layer(settings, shape):
    return layer_of(f'type: "InnerProduct" inner_product_param {{ {settings} }}', shape)


def random_for(it, seed=1):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(it.bottoms[0].shape), [rng.standard_normal(p.shape) for p in it.params]


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(
    "axis, shape, top",
    [
        (1, (2, 3), (2, 5)),
        (1, (2, 3, 4, 2), (2, 5)),
        (1, (2, 7, 1, 1), (2, 5)),
        (1, (2, 3, 4), (2, 5)),
        (2, (2, 3, 4, 2), (2, 3, 5)),
        (-1, (2, 3, 4, 2), (2, 3, 4, 5)),
        (0, (2, 3, 4, 2), (5,)),
        (0, (3,), (5,)),
    ],
)
def test_each_output_is_a_bottom_row_times_a_row_of_the_weights_that_files_hold(axis, shape, top, transpose):
    it = layer(f"num_output: 5 axis: {axis} transpose: {str(transpose).lower()}", shape)
    assert it.tops[0].shape == top
    x, (w, bias) = random_for(it)
    rows = x.reshape(it.record.rows, it.record.inner)
    expected = np.einsum("mk,kn->mn" if transpose else "mk,nk->mn", rows, w) + bias
    np.testing.assert_allclose(forward(it, x, ws=(w, bias)).arrays["y0"].reshape(expected.shape), expected)
    check_gradients(it, x, ws=(w, bias))


def test_weights_over_an_image_are_kept_in_the_images_order():
    weights = layer("num_output: 5", (2, 3, 4, 2)).params[0]
    assert weights.shape == (5, 24)
    assert weights.tensor.shape == (5, 3, 4, 2) and weights.tensor.stored == (5, 4, 2, 3)


@pytest.mark.parametrize("settings, shape", PLAIN_WEIGHTS)
def test_other_weights_are_plain_matrices(settings, shape):
    weights = layer(f"num_output: 5 {settings}", shape).params[0]
    assert weights.tensor.shape == weights.shape and len(weights.shape) == 2


def test_without_a_bias_there_is_one_parameter():
    it = layer("num_output: 5 bias_term: false", (2, 3))
    assert [p.shape for p in it.params] == [(5, 3)]
    assert it.forward().reads == ("x0", "w0")
    x, ws = random_for(it)
    check_gradients(it, x, ws=ws)


def test_the_weights_come_first_and_dx_needs_no_x():
    steps = layer("num_output: 5", (2, 3)).backward(("dx0", "dw1", "dw0"))
    assert [(s.step, s.reads, s.writes) for s in steps] == [
        ("wgrad", ("x0", "dy0"), ("dw0", "dw1")),
        ("dgrad", ("dy0", "w0"), ("dx0",)),
    ]


@pytest.mark.parametrize("wants", [("dx0",), ("dw0",), ("dw1",)])
def test_a_gradient_does_not_depend_on_which_others_are_wanted(wants):
    it = layer("num_output: 5", (4, 3, 2, 2))
    x, ws = random_for(it)
    dy = np.random.default_rng(3).standard_normal((4, 5))
    every = backward(forward(it, x, ws=ws), ("dw0", "dw1", "dx0"), dy)
    some = backward(forward(it, x, ws=ws), wants, dy)
    assert {r for r in some.arrays if r.startswith(("dw", "dx"))} == set(wants)
    np.testing.assert_array_equal(some.arrays[wants[0]], every.arrays[wants[0]])


def test_flops_are_two_for_each_multiply_add():
    it = layer("num_output: 4096", (64, 256, 6, 6))
    assert it.forward().flops == 2 * 64 * 9216 * 4096
    assert [s.flops for s in it.backward(("dw0", "dx0"))] == [it.flops, it.flops]


@pytest.mark.parametrize(
    "settings, remedy",
    [("", "set inner_product_param { num_output } to at least 1"), ("num_output: 3 axis: 2", "use -2 to 1")],
)
def test_an_impossible_product_is_refused_with_a_remedy(settings, remedy):
    with pytest.raises(InputError, match=remedy):
        layer(settings, (2, 3))
