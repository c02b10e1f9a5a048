"""Convolution and Deconvolution: a plain loop as the oracle, Caffe's fixtures, gradients, refusals."""

import numpy as np
import pytest

from layermem.backends.reference import convolution as reference
from layermem.errors import InputError
from tests.layers.harness import backward, check_gradients, forward, layer_of

GEOMETRIES = [
    "kernel_size: 3",
    "kernel_size: 1",
    "kernel_size: 3 pad: 1 stride: 2",
    "kernel_size: 2 stride: 3",
    "kernel_size: 3 dilation: 2 pad: 2",
    "kernel_h: 1 kernel_w: 3 pad_w: 1 stride_h: 2 stride_w: 1",
    "kernel_size: 3 kernel_size: 2 stride: 2 stride: 1 pad: 0 pad: 1 dilation: 1 dilation: 2",
]


def layer(settings, *shapes, type="Convolution", **kwargs):
    tops = "".join(f'top: "y{i}" ' for i in range(len(shapes)))
    return layer_of(f'type: "{type}" {tops} convolution_param {{ {settings} }}', *shapes, **kwargs)


def random_for(it, seed=1):
    """Bottoms and parameters of a layer."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(x.shape) for x in it.bottoms], [rng.standard_normal(p.shape) for p in it.params]


def plain_convolution(it, x, w, bias):
    """Compute one output at a time, directly from the definition."""
    problem = it.record.problem
    down, right, group = problem.rows, problem.columns, problem.groups
    y = np.zeros(it.tops[0].shape)
    _, k, ho, wo = y.shape
    for out in range(k):
        first = out // (k // group) * w.shape[1]
        for i in range(ho):
            for j in range(wo):
                for r in range(down.kernel):
                    for s in range(right.kernel):
                        row = i * down.stride - down.pad + r * down.dilation
                        column = j * right.stride - right.pad + s * right.dilation
                        if 0 <= row < down.size and 0 <= column < right.size:
                            pixel = x[:, first : first + w.shape[1], row, column]
                            y[:, out, i, j] += pixel @ w[out, :, r, s]
        y[:, out] += bias[out]
    return y


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_convolution_is_the_sum_over_each_window(geometry, group):
    it = layer(f"num_output: 4 group: {group} {geometry}", (2, 6, 7, 6))
    (x,), (w, bias) = random_for(it)
    np.testing.assert_allclose(forward(it, x, ws=(w, bias)).arrays["y0"], plain_convolution(it, x, w, bias))


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_deconvolution_is_the_transpose_of_the_convolution_with_its_weights(geometry, group):
    up = layer(f"num_output: 6 group: {group} bias_term: false {geometry}", (2, 4, 4, 5), type="Deconvolution")
    down = layer(f"num_output: 4 group: {group} bias_term: false {geometry}", up.tops[0].shape)
    assert down.tops[0].shape == up.bottoms[0].shape and down.params[0].shape == up.params[0].shape
    (x,), (w,) = random_for(up)
    image = np.random.default_rng(2).standard_normal(up.tops[0].shape)
    through = (forward(up, x, ws=(w,)).arrays["y0"] * image).sum()
    np.testing.assert_allclose(through, (plain_convolution(down, image, w, np.zeros(4)) * x).sum())


@pytest.mark.parametrize("type", ["Convolution", "Deconvolution"])
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_gradients(type, geometry, group):
    it = layer(f"num_output: 2 group: {group} {geometry}", (2, 4, 4, 5), type=type)
    (x,), ws = random_for(it)
    check_gradients(it, x, ws=ws)


@pytest.mark.parametrize("type", ["Convolution", "Deconvolution"])
def test_several_bottoms_share_the_weights_and_their_gradients_add_up(type):
    it = layer("num_output: 2 kernel_size: 2", (1, 2, 3, 3), (1, 2, 3, 3), type=type)
    xs, ws = random_for(it)
    check_gradients(it, *xs, ws=ws)
    single = layer("num_output: 2 kernel_size: 2", (1, 2, 3, 3), type=type)
    both = forward(it, *xs, ws=ws)
    for i in range(2):
        np.testing.assert_array_equal(both.arrays[f"y{i}"], forward(single, xs[i], ws=ws).arrays["y0"])


def test_a_sobel_filter_equals_its_two_halves_one_after_the_other():
    x = np.random.default_rng(4).standard_normal((2, 3, 6, 8))
    row, column = np.array([-1.0, 0, 1]), np.array([1.0, 2, 1])
    whole = layer("num_output: 1 kernel_size: 3 stride: 2 bias_term: false", x.shape)
    w = np.broadcast_to(np.outer(column, row), (1, 3, 3, 3))
    first = layer("num_output: 1 kernel_h: 3 kernel_w: 1 stride_h: 2 stride_w: 1 bias_term: false", x.shape)
    half = forward(first, x, ws=(np.broadcast_to(column.reshape(3, 1), (1, 3, 3, 1)),)).arrays["y0"]
    second = layer("num_output: 1 kernel_h: 1 kernel_w: 3 stride_h: 1 stride_w: 2 bias_term: false", half.shape)
    np.testing.assert_allclose(
        forward(second, half, ws=(row.reshape(1, 1, 1, 3),)).arrays["y0"],
        forward(whole, x, ws=(w,)).arrays["y0"],
        atol=1e-12,
    )


def test_deconvolution_adds_up_where_windows_meet():
    it = layer("num_output: 4 kernel_size: 3 stride: 2", (2, 3, 6, 4), type="Deconvolution")
    y = forward(it, np.ones((2, 3, 6, 4)), ws=(np.ones((3, 4, 3, 3)), np.full(4, 0.1))).arrays["y0"]
    assert y.shape == (2, 4, 13, 9)
    for i in range(13):
        for j in range(9):
            windows = (1 + (i % 2 == 0 and 0 < i < 12)) * (1 + (j % 2 == 0 and 0 < j < 8))
            np.testing.assert_allclose(y[:, :, i, j], 3 * windows + 0.1)


@pytest.mark.parametrize(
    "settings, shape, top",
    [
        ("kernel_size: 3 stride: 2", (2, 3, 6, 4), (2, 4, 2, 1)),  # Caffe's test fixture
        ("kernel_size: 11 stride: 4", (1, 3, 227, 227), (1, 4, 55, 55)),
        ("kernel_size: 7 stride: 2 pad: 3", (1, 3, 224, 224), (1, 4, 112, 112)),
        ("kernel_size: 3 dilation: 6 pad: 6", (1, 3, 41, 41), (1, 4, 41, 41)),
    ],
)
def test_sizes_round_down(settings, shape, top):
    assert layer(f"num_output: 4 {settings}", shape).tops[0].shape == top


def test_parameters_have_caffes_shapes_and_lie_channels_last():
    it = layer("num_output: 8 group: 2 kernel_h: 3 kernel_w: 5 weight_filler { type: 'xavier' }", (1, 6, 9, 9))
    assert [p.shape for p in it.params] == [(8, 3, 3, 5), (8,)]
    assert it.params[0].tensor.stored == (8, 3, 5, 3)
    assert it.params[0].filler.type == "xavier"
    assert layer("num_output: 8 group: 2 kernel_size: 3", (1, 6, 9, 9), type="Deconvolution").params[0].shape == (
        6,
        4,
        3,
        3,
    )


def test_the_op_that_writes_dx_does_not_read_x():
    it = layer("num_output: 2 kernel_size: 2", (1, 2, 3, 3), (1, 2, 3, 3))
    weights, data = it.backward(("dw0", "dw1", "dx0", "dx1"))
    assert (weights.reads, weights.writes) == (("x0", "x1", "dy0", "dy1"), ("dw0", "dw1"))
    assert (data.reads, data.writes) == (("dy0", "dy1", "w0"), ("dx0", "dx1"))
    (data,) = it.backward(("dx1",))
    assert (data.reads, data.writes, data.flops) == (("dy1", "w0"), ("dx1",), 2 * it.record.problem.macs)


@pytest.mark.parametrize("wants", [("dx0",), ("dw0",), ("dw1",), ("dw1", "dx0")])
def test_a_gradient_does_not_depend_on_which_others_are_wanted(wants):
    it = layer("num_output: 2 kernel_size: 2", (1, 2, 3, 3))
    (x,), ws = random_for(it)
    dy = np.random.default_rng(3).standard_normal(it.tops[0].shape)
    every = backward(forward(it, x, ws=ws), ("dw0", "dw1", "dx0"), dy)
    some = backward(forward(it, x, ws=ws), wants, dy)
    assert {r for r in some.arrays if r.startswith(("dw", "dx"))} == set(wants)
    for role in wants:
        np.testing.assert_array_equal(some.arrays[role], every.arrays[role])
    if wants == ("dw1",):
        assert it.backward(wants)[0].reads == ("dy0",)


def test_flops_are_two_for_each_multiply_add():
    it = layer("num_output: 96 kernel_size: 11 stride: 4", (1, 3, 227, 227))
    assert it.forward().flops == 2 * 105_415_200  # conv1 of AlexNet
    assert [s.flops for s in it.backward(("dw0", "dx0"))] == [2 * 105_415_200] * 2
    assert layer("num_output: 96 kernel_size: 3 group: 96", (2, 96, 5, 5)).forward().flops == 2 * 2 * 9 * 96 * 9
    assert layer("num_output: 2 kernel_size: 4", (1, 3, 5, 5), type="Deconvolution").forward().flops == 2 * 25 * 96


def test_the_split_into_portions_changes_nothing_but_the_order_of_sums(monkeypatch):
    it = layer("num_output: 4 group: 2 kernel_size: 3", (5, 4, 6, 6))
    (x,), ws = random_for(it)
    whole = check_gradients(it, x, ws=ws, wants=("dw1",))
    dy = whole.arrays["dy0"]
    backward(whole, ("dw0",), dy)
    monkeypatch.setattr(reference, "AT_ONCE", 2 * 16 * 36)  # two images
    parts = backward(forward(it, x, ws=ws), ("dw0",), dy)
    np.testing.assert_array_equal(parts.arrays["y0"], whole.arrays["y0"])
    np.testing.assert_allclose(parts.arrays["dw0"], whole.arrays["dw0"], rtol=1e-12)


@pytest.mark.parametrize(
    "settings, shapes, remedy",
    [
        ("num_output: 2 kernel_size: 3", [(1, 2, 9)], "Reshape"),
        ("num_output: 2 kernel_size: 3", [(1, 2, 9, 9, 9)], "N x C x H x W"),
        ("num_output: 2 kernel_size: 3 axis: 0", [(1, 2, 9, 9)], "channels in axis 1: Reshape"),
        ("num_output: 2 kernel_size: 3 group: 3", [(1, 3, 9, 9)], "must divide"),
        ("num_output: 3 kernel_size: 3 group: 3", [(1, 2, 9, 9)], "must divide"),
        ("num_output: 2 kernel_size: 3 group: 0", [(1, 2, 9, 9)], "must divide"),
        ("kernel_size: 3", [(1, 2, 9, 9)], "num_output"),
        ("num_output: 2", [(1, 2, 9, 9)], "give it once"),
        ("num_output: 2 kernel_size: 3 kernel_h: 3 kernel_w: 3", [(1, 2, 9, 9)], "keep one"),
        ("num_output: 2 kernel_size: 1 kernel_size: 2 kernel_size: 3", [(1, 2, 9, 9)], "give it once"),
        ("num_output: 2 kernel_h: 3", [(1, 2, 9, 9)], "at least 1 in every spatial axis"),
        ("num_output: 2 kernel_size: 3 stride: 0", [(1, 2, 9, 9)], "at least 1"),
        ("num_output: 2 kernel_size: 3 stride_h: 2", [(1, 2, 9, 9)], "at least 1 in every spatial axis"),
        ("num_output: 2 kernel_size: 10", [(1, 2, 9, 9)], "smaller kernel"),
        ("num_output: 2 kernel_size: 5 dilation: 3 pad: 1", [(1, 2, 9, 9)], "13 x 13"),
        ("num_output: 2 kernel_size: 3", [(1, 2, 9, 9), (1, 2, 8, 9)], "one shape"),
    ],
)
def test_an_impossible_convolution_is_refused_with_a_remedy(settings, shapes, remedy):
    with pytest.raises(InputError, match=remedy):
        layer(settings, *shapes)


def test_each_bottom_needs_its_own_top():
    with pytest.raises(InputError, match="2 bottoms and 1 tops"):
        layer_of(
            'type: "Convolution" top: "y" convolution_param { num_output: 1 kernel_size: 1 }',
            (1, 2, 3, 3),
            (1, 2, 3, 3),
        )


def test_a_deconvolution_that_crops_everything_is_refused():
    with pytest.raises(InputError, match="smaller pad"):
        layer("num_output: 2 kernel_size: 3 pad: 2", (1, 2, 1, 1), type="Deconvolution")


# -- depthwise types of forks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", ["", "group: 1", "group: 3"])
def test_a_depthwise_convolution_has_a_group_for_each_channel(group):
    of_fork = layer_of(
        f'type: "DepthwiseConvolution" convolution_param {{ num_output: 6 kernel_size: 3 {group} }}', (2, 3, 5, 5)
    )
    settings = "num_output: 6 kernel_size: 3 group: 3"
    of_caffe = layer_of(f'type: "Convolution" convolution_param {{ {settings} }}', (2, 3, 5, 5))
    assert of_fork.record == of_caffe.record and of_fork.params[0].shape == of_caffe.params[0].shape == (6, 1, 3, 3)


@pytest.mark.parametrize("settings", ["", "num_output: 3", "num_output: 2 group: 2", "num_output: 9", "group: 4"])
def test_a_convolution_depthwise_has_as_many_outputs_as_channels_whatever_is_stated(settings):
    of_fork = layer_of(f'type: "ConvolutionDepthwise" convolution_param {{ {settings} kernel_size: 3 }}', (2, 3, 5, 5))
    whole = "num_output: 3 kernel_size: 3 group: 3"
    of_caffe = layer_of(f'type: "Convolution" convolution_param {{ {whole} }}', (2, 3, 5, 5))
    assert of_fork.record == of_caffe.record and of_fork.tops == of_caffe.tops
    assert [param.shape for param in of_fork.params] == [param.shape for param in of_caffe.params]


def test_a_depthwise_convolution_with_other_groups_is_refused():
    with pytest.raises(InputError, match="a group for each of its 4 channels: remove 'group'"):
        layer_of(
            'type: "DepthwiseConvolution" convolution_param { num_output: 4 kernel_size: 1 group: 2 }', (1, 4, 5, 5)
        )
