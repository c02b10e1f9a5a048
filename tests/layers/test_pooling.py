"""Pooling: Caffe's own fixtures (test_pooling_layer.cpp), rounding, clipping, gradients."""

import numpy as np
import pytest

from layermem.errors import InputError
from tests.layers.harness import TEST, Run, backward, check_gradients, forward, layer_of


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
        ("pool: STOCHASTIC kernel_size: 2 pad: 1", "use pad: 0"),
        ("kernel_size: 9", "smaller kernel"),
        ("kernel_size: 2 pad: 2", "smaller pad"),
        ("stride: 2", "kernel_size"),
        ("kernel_size: 2 stride: 4 round_mode: CEIL", "round_mode: FLOOR"),
    ],
)
def test_an_impossible_pooling_is_refused_with_a_remedy(settings, remedy):
    with pytest.raises(InputError, match=remedy):
        pool(settings, (1, 1, 4, 4))


@pytest.mark.parametrize("mode, rows", [("ceil_mode: true", 3), ("ceil_mode: false", 2), ("", 3)])
def test_ceil_mode_is_how_forks_write_the_rounding(mode, rows):
    layer = layer_of(f'type: "Pooling" pooling_param {{ kernel_size: 3 stride: 2 {mode} }}', (1, 1, 6, 6))
    assert layer.tops[0].shape == (1, 1, rows, rows)


def test_ceil_mode_beside_round_mode_is_refused():
    with pytest.raises(InputError, match="gives both ceil_mode and round_mode; keep round_mode"):
        layer_of('type: "Pooling" pooling_param { kernel_size: 2 ceil_mode: false round_mode: CEIL }', (1, 1, 6, 6))


# ---- mask and STOCHASTIC --------------------------------------------------------------------------------------------


def test_the_mask_is_the_place_of_the_maximum_within_its_plane():
    x = np.array([[1.0, 5, 2], [9, 0, 3], [4, 4, 7]]).reshape(1, 1, 3, 3)
    it = layer_of('type: "Pooling" top: "y" top: "mask" pooling_param { kernel_size: 2 pad: 1 stride: 2 }', x.shape)
    run = forward(it, x)
    np.testing.assert_array_equal(run.arrays["y0"][0, 0], [[1, 5], [9, 7]])
    np.testing.assert_array_equal(run.arrays["y1"][0, 0], [[0, 1], [3, 8]])
    assert [step.reads for step in it.backward(("dx0",))] == [("dy0", "argmax")]


def test_only_a_maximum_has_a_mask():
    with pytest.raises(InputError, match="remove the second 'top:' line"):
        layer_of('type: "Pooling" top: "y" top: "m" pooling_param { pool: AVE kernel_size: 2 }', (1, 1, 4, 4))


STOCHASTIC = 'type: "Pooling" name: "%s" pooling_param { pool: STOCHASTIC kernel_size: %d stride: %d }'


def test_an_element_is_drawn_with_the_probability_of_its_share():
    x = np.tile([[1.0, 2], [0, 5]], (60, 60))[None, None]
    run = forward(layer_of(STOCHASTIC % ("it", 2, 2), x.shape), x)
    values, counts = np.unique(run.arrays["y0"], return_counts=True)
    np.testing.assert_array_equal(values, [1, 2, 5])
    np.testing.assert_allclose(counts / 3600, [1 / 8, 2 / 8, 5 / 8], atol=0.03)


def test_draws_depend_on_seed_layer_and_step_and_are_the_same_again():
    x = np.random.default_rng(1).random((1, 3, 12, 12))
    draw = layer_of(STOCHASTIC % ("it", 3, 3), x.shape)
    assert draw.recompute_kind == "seeded"
    drawn = []
    for layer, context in (
        (draw, {"seed": 1, "step": 2}),
        (draw, {"seed": 1, "step": 2}),
        (draw, {"seed": 2, "step": 2}),
        (draw, {"seed": 1, "step": 3}),
        (layer_of(STOCHASTIC % ("other", 3, 3), x.shape), {"seed": 1, "step": 2}),
    ):
        run = Run(layer, context=context)
        run.put("x0", x)
        run.step(layer.forward())
        drawn.append(run.arrays["y0"].copy())
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert all((drawn[0] != other).any() for other in drawn[2:])


def test_the_gradient_goes_to_the_element_that_was_drawn():
    x = np.arange(1.0, 17).reshape(1, 1, 4, 4)
    run = forward(layer_of(STOCHASTIC % ("it", 2, 2), x.shape), x)
    backward(run, ("dx0",), np.full((1, 1, 2, 2), 3.0))
    np.testing.assert_array_equal(run.arrays["dx0"] > 0, np.isin(x, run.arrays["y0"]))
    assert run.arrays["dx0"].sum() == 12


def test_a_window_of_zeros_gives_zero_and_its_first_element_the_gradient():
    run = forward(layer_of(STOCHASTIC % ("it", 2, 2), (1, 1, 2, 2)), np.zeros((1, 1, 2, 2)))
    backward(run, ("dx0",), np.ones((1, 1, 1, 1)))
    assert run.arrays["y0"].item() == 0
    np.testing.assert_array_equal(run.arrays["dx0"][0, 0], [[1, 0], [0, 0]])


def test_in_test_it_is_the_mean_that_the_probabilities_give():
    x = np.array([[1.0, 2], [0, 5]]).reshape(1, 1, 2, 2)
    it = layer_of(STOCHASTIC % ("it", 2, 2), x.shape, phase=TEST)
    assert it.stash == {} and it.recompute_kind == "exact" and it.backward(("dx0",)) == ()
    assert forward(it, x).arrays["y0"].item() == 30 / 8
    assert forward(it, -x).arrays["y0"].item() == 0
