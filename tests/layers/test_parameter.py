"""Parameter: a learned blob as a top."""

import numpy as np
import pytest

from layermem.errors import InputError
from tests.layers.harness import backward, forward, layer_of

TEXT = 'type: "Parameter" parameter_param { shape { dim: 2 dim: 3 dim: 2 dim: 2 } } param { lr_mult: 2 }'


def test_the_top_is_the_parameter_and_its_gradient_the_gradient_of_the_top():
    w, dy = np.arange(24.0).reshape(2, 3, 2, 2), np.ones((2, 3, 2, 2))
    it = layer_of(TEXT)
    run = backward(forward(it, ws=[w]), ("dw0",), dy)
    np.testing.assert_array_equal(run.arrays["y0"], w)
    np.testing.assert_array_equal(run.arrays["dw0"], dy)
    assert it.params[0].lr_mult == 2 and it.params[0].shape == (2, 3, 2, 2)


def test_it_starts_at_0():
    assert layer_of(TEXT).params[0].filler.value == 0


@pytest.mark.parametrize(
    "text, remedy",
    [
        ('type: "Parameter"', "give parameter_param"),
        ('type: "Parameter" parameter_param { shape { dim: 0 } }', "each dimension must be positive"),
        (TEXT + ' bottom: "x0"', "has 1 bottom; Parameter takes 0"),
    ],
)
def test_a_parameter_without_a_shape_or_with_a_bottom_is_refused(text, remedy):
    with pytest.raises(InputError, match=remedy):
        layer_of(text, *[(2,)] * ("bottom" in text))
