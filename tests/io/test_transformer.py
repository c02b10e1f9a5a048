"""The order of a Transformer's steps, and its inverse."""

import numpy as np
import pytest

from layermem.errors import InputError
from layermem.io import Transformer

IMAGE = np.array([[[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]], np.float32)  # [1,2,3]


def transformer():
    made = Transformer({"data": (10, 3, 1, 2)})
    made.set_transpose("data", (2, 0, 1))
    made.set_channel_swap("data", (2, 1, 0))
    made.set_raw_scale("data", 100)
    made.set_mean("data", np.array([1.0, 2.0, 3.0]))
    made.set_input_scale("data", 2)
    return made


def test_the_order_is_transpose_swap_raw_scale_mean_input_scale():
    before = IMAGE.copy()
    made = transformer().preprocess("data", IMAGE)
    expected = [[[(30 - 1) * 2, (60 - 1) * 2]], [[(20 - 2) * 2, (50 - 2) * 2]], [[(10 - 3) * 2, (40 - 3) * 2]]]
    np.testing.assert_allclose(made, expected, rtol=1e-6)
    assert made.dtype == np.float32 and np.array_equal(IMAGE, before)


def test_deprocess_is_the_inverse(rng):
    made = transformer()
    np.testing.assert_allclose(made.deprocess("data", made.preprocess("data", IMAGE)), IMAGE, rtol=1e-5)
    np.testing.assert_allclose(made.deprocess("data", made.preprocess("data", IMAGE)[None]), IMAGE, rtol=1e-5)
    gray = Transformer({"data": (1, 1, 2, 2)})
    assert gray.deprocess("data", np.ones((1, 1, 2, 2))).shape == (2, 2)
    gray.set_transpose("data", (2, 0, 1))
    assert gray.deprocess("data", np.ones((1, 1, 2, 2))).shape == (2, 2, 1)


def test_an_image_of_another_size_is_resized_first():
    made = Transformer({"data": (1, 3, 1, 1)})
    made.set_transpose("data", (2, 0, 1))
    np.testing.assert_allclose(made.preprocess("data", IMAGE).ravel(), [0.25, 0.35, 0.45], rtol=1e-6)


def test_a_mean_is_of_channels_or_an_image_that_is_resized():
    made = Transformer({"data": (1, 3, 1, 2)})
    made.set_transpose("data", (2, 0, 1))
    made.set_mean("data", np.arange(12.0).reshape(3, 2, 2))
    np.testing.assert_allclose(made.mean["data"], [[[1, 2]], [[5, 6]], [[9, 10]]], rtol=1e-6)
    made.set_mean("data", np.full((1, 2), 0.1))
    np.testing.assert_allclose(made.preprocess("data", IMAGE)[0], [[0, 0.3]], atol=1e-7)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda t: t.set_mean("dat", IMAGE), "'dat' is none of the inputs of this Transformer; did you mean 'data'?"),
        (lambda t: t.preprocess("x", IMAGE), "'x' is none of the inputs of this Transformer; choose from data"),
        (
            lambda t: t.set_transpose("data", (0, 1)),
            "(0, 1) is no order of the 3 axes of 'data'; give each of 0 to 2 once",
        ),
        (
            lambda t: t.set_channel_swap("data", (1, 0)),
            "(1, 0) does not order the 3 channels of 'data'; give 3 numbers",
        ),
        (lambda t: t.set_mean("data", np.ones(2)), "a mean of 2 channels does not fit 'data', which has 3; give 3"),
        (
            lambda t: t.set_mean("data", np.ones((2, 1, 2))),
            "a mean of shape 2x1x2 does not fit 'data'; give one of shape [3]",
        ),
    ],
)
def test_mismatched_input_is_refused(call, says):
    with pytest.raises(InputError) as refused:
        call(transformer())
    assert says in str(refused.value)


def test_it_shows_its_inputs():
    assert repr(transformer()) == "<Transformer: data 10x3x1x2>"
