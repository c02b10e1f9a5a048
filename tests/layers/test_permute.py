"""Permute: the new place of each element, orders that are views, refusals."""

import numpy as np
import pytest

from layermem.errors import InputError
from tests.layers.harness import forward, layer_of


def permute(shape, *order):
    return layer_of(f'type: "Permute" permute_param {{ {" ".join(f"order: {axis}" for axis in order)} }}', shape)


def test_the_channels_go_to_the_back():
    x = np.arange(8.0).reshape(1, 2, 2, 2)  # channel 0: 0 1 2 3
    y = forward(permute(x.shape, 0, 2, 3, 1), x).arrays["y0"]
    assert y.shape == (1, 2, 2, 2)
    assert y.reshape(-1).tolist() == [0, 4, 1, 5, 2, 6, 3, 7]


def test_axes_that_are_not_named_follow_in_their_order():
    assert permute((2, 3, 4, 5), 3, 1).tops[0].shape == (5, 3, 2, 4)
    assert permute((2, 3, 4, 5), 2).tops[0].shape == (4, 2, 3, 5)


@pytest.mark.parametrize(
    "shape, order, view",
    [
        ((2, 3, 4, 5), (0, 1, 2, 3), True),
        ((2, 3, 4, 5), (0, 2, 3, 1), False),
        ((2, 1, 4, 5), (0, 2, 3, 1), False),  # stored 2 x 4 x 5, then 2 x 5 x 1 x 4: the new channels are last
        ((2, 3, 1, 1), (0, 2, 3, 1), True),
        ((2, 3, 1, 5), (0, 1, 3, 2), True),
        ((3, 1, 4), (0, 2, 1), True),
        ((3, 2, 4), (0, 2, 1), False),
    ],
)
def test_an_order_that_moves_no_element_is_a_view(shape, order, view):
    layer = permute(shape, *order)
    assert layer.record.view is view
    assert bool(layer.forward().overlays) is view and bool(layer.backward(["dx0"])[0].overlays) is view
    x = np.arange(np.prod(shape), dtype=float).reshape(shape)
    np.testing.assert_array_equal(forward(layer, x).arrays["y0"], x.transpose(order))


@pytest.mark.parametrize("order", [(4,), (0, 0), (1, 2, 1)])
def test_an_order_that_repeats_an_axis_or_has_none_such_is_refused(order):
    with pytest.raises(InputError, match="for a bottom of 4 axes; name each axis once, from 0 to 3"):
        permute((2, 3, 4, 5), *order)


# ---- ShuffleChannel -------------------------------------------------------------------------------------------------


def shuffle(shape, groups):
    return layer_of(f'type: "ShuffleChannel" shuffle_channel_param {{ group: {groups} }}', shape)


@pytest.mark.parametrize(
    "groups, order", [(3, [0, 2, 4, 1, 3, 5]), (2, [0, 3, 1, 4, 2, 5]), (1, range(6)), (6, range(6))]
)
def test_the_channels_of_the_groups_come_by_turns(groups, order):
    x = np.arange(12.0).reshape(1, 6, 1, 2)
    np.testing.assert_array_equal(forward(shuffle(x.shape, groups), x).arrays["y0"], x[:, list(order)])


def test_a_shuffle_of_one_group_is_a_view():
    assert shuffle((2, 6, 3, 3), 1).record.view and not shuffle((2, 6, 3, 3), 2).record.view


@pytest.mark.parametrize("groups", [0, 4])
def test_a_number_of_groups_that_does_not_divide_the_channels_is_refused(groups):
    with pytest.raises(InputError, match="use a group that divides 6"):
        shuffle((2, 6, 3, 3), groups)


# ---- Reorg ----------------------------------------------------------------------------------------------------------


def darknet(x, stride, reverse):
    """The loop of darknet's reorg_cpu over one item, on flat arrays."""
    n, c, h, w = x.shape
    few, into = c // stride**2, np.empty(x.shape).reshape(n, -1)
    for item in range(n):
        source = x[item].reshape(-1)
        for k in range(c):
            for j in range(h):
                for i in range(w):
                    down, right = j * stride + k // few // stride, i * stride + k // few % stride
                    small = i + w * (j + h * k)
                    large = right + w * stride * (down + h * stride * (k % few))
                    into[item][large if reverse else small] = source[small if reverse else large]
    return into


@pytest.mark.parametrize(
    "reverse, shape, out",
    [
        (False, (2, 4, 6, 2), (2, 16, 3, 1)),
        (False, (1, 8, 4, 10), (1, 32, 2, 5)),
        (True, (2, 8, 3, 5), (2, 2, 6, 10)),
        (False, (1, 9, 6, 3), (1, 81, 2, 1)),
    ],
)
def test_reorg_has_the_order_of_darknet(reverse, shape, out):
    stride = 3 if shape[1] == 9 else 2
    layer = layer_of(f'type: "Reorg" reorg_param {{ stride: {stride} reverse: {str(reverse).lower()} }}', shape)
    x = np.arange(np.prod(shape), dtype=float).reshape(shape)
    y = forward(layer, x).arrays["y0"]
    assert y.shape == out
    np.testing.assert_array_equal(y.reshape(len(y), -1), darknet(x, stride, reverse))


@pytest.mark.parametrize("stride, shape", [(2, (1, 6, 4, 4)), (2, (1, 4, 3, 4)), (0, (1, 4, 4, 4))])
def test_a_stride_that_does_not_divide_is_refused(stride, shape):
    with pytest.raises(InputError, match="use one whose square divides the channels"):
        layer_of(f'type: "Reorg" reorg_param {{ stride: {stride} }}', shape)
