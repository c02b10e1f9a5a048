"""Im2col: windows by hand, a convolution as a product, refusals."""

import numpy as np
import pytest

from layermem.errors import InputError
from tests.layers.harness import backward, forward, layer_of, nbytes


def im2col(settings, *shapes):
    return layer_of(f'type: "Im2col" convolution_param {{ {settings} }}', *shapes)


def test_the_taps_of_a_channel_are_channels_next_to_each_other_row_by_row():
    x = np.arange(18.0).reshape(1, 2, 3, 3)
    y = forward(im2col("kernel_size: 2", x.shape), x).arrays["y0"]
    assert y.shape == (1, 8, 2, 2)
    np.testing.assert_array_equal(y[0, :, 0, 1], [1, 2, 4, 5, 10, 11, 13, 14])


def test_the_pad_is_zero_and_a_pixel_of_many_windows_gets_the_sum_of_their_gradients():
    x = np.arange(1.0, 5).reshape(1, 1, 2, 2)
    run = forward(im2col("kernel_size: 3 pad: 1", x.shape), x)
    np.testing.assert_array_equal(run.arrays["y0"][0, :, 0, 0], [0, 0, 0, 0, 1, 2, 0, 3, 4])
    backward(run, ("dx0",), np.ones((1, 9, 2, 2)))
    np.testing.assert_array_equal(run.arrays["dx0"], np.full(x.shape, 4))


@pytest.mark.parametrize(
    "settings", ["kernel_size: 3 pad: 1 stride: 2", "kernel_h: 2 kernel_w: 3 pad_h: 2 pad_w: 0 dilation: 2"]
)
def test_a_convolution_is_a_product_with_its_top(settings):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, 3, 8, 7))
    other = layer_of(f'type: "Convolution" convolution_param {{ num_output: 4 bias_term: false {settings} }}', x.shape)
    w = rng.standard_normal(other.params[0].shape)
    columns = forward(im2col(settings, x.shape), x).arrays["y0"]
    y = forward(other, x, ws=[w]).arrays["y0"]
    np.testing.assert_allclose(np.einsum("kc,nchw->nkhw", w.reshape(4, -1), columns), y)


def test_backward_reads_dy_only_and_nothing_is_kept():
    it = im2col("kernel_size: 2", (1, 2, 3, 3))
    assert [step.reads for step in it.backward(("dx0",))] == [("dy0",)] and nbytes(it) == 0


@pytest.mark.parametrize(
    "settings, shape, remedy",
    [
        ("kernel_size: 2", (1, 2, 3), "N x C x H x W"),
        ("kernel_size: 2 axis: 2", (1, 2, 3, 3), "channels in axis 1: Reshape"),
        ("kernel_size: 5 pad: 1", (1, 2, 2, 9), "use a smaller kernel"),
        ("", (1, 2, 3, 3), "kernel_size"),
    ],
)
def test_a_blob_without_windows_is_refused_with_a_remedy(settings, shape, remedy):
    with pytest.raises(InputError, match=remedy):
        im2col(settings, shape)
