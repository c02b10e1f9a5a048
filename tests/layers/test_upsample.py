"""Upsample: by hand, and what is refused."""

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
        ("scale: 2", [(1, 2, 3, 4), (1, 2, 3, 4)], "has a mask for its second bottom, as in SegNet's Caffe"),
    ],
)
def test_what_cannot_be_upsampled_is_refused_with_a_remedy(settings, shapes, remedy):
    with pytest.raises(InputError, match=remedy):
        layer_of(f'type: "Upsample" upsample_param {{ {settings} }}', *shapes)
