"""Pooling: Caffe's own fixtures (test_pooling_layer.cpp), rounding, clipping, gradients."""

import numpy as np
import pytest

from layermem.errors import InputError
from tests.layers.harness import check_gradients, forward, layer_of


def pool(settings: str, shape, **kwargs):
    return layer_of(f'type: "Pooling" pooling_param {{ {settings} }}', shape, **kwargs)


def test_max_pooling_gives_the_largest_of_each_window_and_where_it_was():
    x = np.array([[1, 2, 5, 2, 3], [9, 4, 1, 4, 8], [1, 2, 5, 2, 3]], float).reshape(1, 1, 3, 5)
    run = forward(pool("kernel_size: 2 stride: 1", x.shape), x)
    assert run.arrays["y0"][0, 0].tolist() == [[9, 5, 5, 8], [9, 5, 5, 8]]
    # Caffe's flat indices 5 2 2 9 / 5 12 12 9, here as indices within the 2 x 2 window
    assert run.arrays["argmax"][0, 0].tolist() == [[2, 1, 0, 3], [0, 3, 2, 1]]


def test_a_window_that_would_start_in_the_right_padding_is_dropped():
    x = np.array([[1, 2, 4], [2, 3, 2], [4, 2, 1]], float).reshape(1, 1, 3, 3)
    run = forward(pool("kernel_size: 3 stride: 2 pad: 2", x.shape), x)
    assert run.arrays["y0"][0, 0].tolist() == [[1, 4, 4], [4, 4, 4], [4, 4, 1]]


def test_a_mean_divides_by_the_window_clipped_to_the_padded_image():
    run = forward(pool("pool: AVE kernel_size: 3 stride: 1 pad: 1", (1, 1, 3, 3)), np.full((1, 1, 3, 3), 2.0))
    expected = [[8 / 9, 4 / 3, 8 / 9], [4 / 3, 2, 4 / 3], [8 / 9, 4 / 3, 8 / 9]]
    np.testing.assert_allclose(run.arrays["y0"][0, 0], expected)


@pytest.mark.parametrize("mode, out", [("", 7), ("round_mode: FLOOR", 6)])
def test_sizes_round_up_unless_the_net_says_floor(mode, out):
    layer = pool(f"kernel_size: 3 stride: 2 {mode}", (2, 3, 14, 14))
    assert layer.tops[0].shape == (2, 3, out, out)


@pytest.mark.parametrize("method", ["MAX", "AVE"])
@pytest.mark.parametrize(
    "geometry",
    [
        "kernel_size: 2 stride: 2",
        "kernel_size: 3 stride: 2 pad: 1",
        "kernel_h: 2 kernel_w: 3 stride_h: 1 stride_w: 2 pad_h: 0 pad_w: 1",
        "kernel_size: 3 stride: 3",
        "global_pooling: true",
    ],
)
def test_gradients(method, geometry):
    x = np.random.default_rng(3).permutation(2 * 3 * 5 * 6).reshape(2, 3, 5, 6) * 0.1
    check_gradients(pool(f"pool: {method} {geometry}", x.shape), x)


def test_the_index_takes_one_byte_while_the_window_has_at_most_256_elements():
    assert pool("kernel_size: 16", (1, 1, 32, 32)).stash["argmax"].dtype == "uint8"
    assert pool("kernel_size: 17", (1, 1, 32, 32)).stash["argmax"].dtype == "int32"


@pytest.mark.parametrize(
    "settings, remedy",
    [
        ("pool: STOCHASTIC kernel_size: 2", "use MAX or AVE"),
        ("kernel_size: 9", "smaller kernel"),
        ("kernel_size: 2 pad: 2", "smaller pad"),
        ("stride: 2", "kernel_size"),
        ("kernel_size: 2 stride: 4 round_mode: CEIL", "round_mode: FLOOR"),
    ],
)
def test_what_cannot_be_pooled_is_refused_with_a_remedy(settings, remedy):
    with pytest.raises(InputError, match=remedy):
        pool(settings, (1, 1, 4, 4))


@pytest.mark.parametrize("mode, rows", [("ceil_mode: true", 3), ("ceil_mode: false", 2), ("", 3)])
def test_ceil_mode_is_how_forks_write_the_rounding(mode, rows):
    layer = layer_of(f'type: "Pooling" pooling_param {{ kernel_size: 3 stride: 2 {mode} }}', (1, 1, 6, 6))
    assert layer.tops[0].shape == (1, 1, rows, rows)


def test_ceil_mode_beside_round_mode_is_refused():
    with pytest.raises(InputError, match="gives both ceil_mode and round_mode; keep round_mode"):
        layer_of('type: "Pooling" pooling_param { kernel_size: 2 ceil_mode: false round_mode: CEIL }', (1, 1, 6, 6))
