"""Convolutions of other ranks than N x C x H x W: a plain loop as the oracle, Caffe's shapes, refusals."""

import numpy as np
import pytest

from layermem.errors import InputError
from layermem.graph.caffe_bytes import caffe_bytes
from layermem.graph.net import Net
from layermem.layers.fillers import fan, fill
from layermem.proto.read import read_net_text
from tests.cases.convolution import RANKS
from tests.layers.harness import forward, layer_of


def net_of(kind, settings, shape, more="", count=1):
    """A net of one such layer, with `count` bottoms of `shape`."""
    dims = " ".join(f"dim: {d}" for d in shape)
    names = [f"x{i}" for i in range(count)]
    inputs = "".join(
        f'layer {{ name: "{x}" type: "Input" top: "{x}" input_param {{ shape {{ {dims} }} }} }}' for x in names
    )
    wiring = "".join(f'bottom: "{x}" ' for x in names) + "".join(f'top: "y{i}" ' for i in range(count))
    return Net(
        read_net_text(f"""{inputs} layer {{ name: "conv" type: "{kind}" {wiring} {more}
                convolution_param {{ {settings} }} }}"""),
        0,
    )


def values(net, x, ws):
    """The top of the net, whose layers the reference runs in sequence."""
    blobs = {"x0": x}
    for node in net.nodes[1:]:
        of_node = ws if node.layer.params else ()
        run = forward(node.layer, *(blobs[name] for name in node.bottoms), ws=of_node, overlaid=False)
        blobs[node.tops[0]] = run.arrays["y0"]
    return blobs["y0"]


def windows_of(net):
    """(axis of the channels, kernel, stride, pad, dilation of each spatial axis)"""
    p = next(node.layer.param for node in net.nodes if node.layer.name == "conv").convolution_param
    spatial = len(net.blobs["x0"].shape) - p.axis - 1

    def each(values, default):
        return (list(values) or [default]) * (spatial if len(values) < 2 else 1)

    return p.axis, each(p.kernel_size, 1), each(p.stride, 1), each(p.pad, 0), each(p.dilation, 1)


def plain_convolution(net, x, w, bias, groups):
    """Compute one output at a time, directly from the definition."""
    axis, _, stride, pad, dilation = windows_of(net)
    x = x.reshape(-1, *x.shape[axis:])
    top = net.blobs["y0"].shape
    y = np.zeros((len(x), *top[axis:]))
    for out in range(y.shape[1]):
        first = out // (y.shape[1] // groups) * w.shape[1]
        for place in np.ndindex(*y.shape[2:]):
            y[(slice(None), out, *place)] = bias[out]
            for tap in np.ndindex(*w.shape[2:]):
                at = [o * s - p + t * d for o, s, p, t, d in zip(place, stride, pad, tap, dilation, strict=True)]
                if all(0 <= i < size for i, size in zip(at, x.shape[2:], strict=True)):
                    pixel = x[(slice(None), slice(first, first + w.shape[1]), *at)]
                    y[(slice(None), out, *place)] += pixel @ w[(out, slice(None), *tap)]
    return y.reshape(top)


def random_for(net, seed=1):
    rng = np.random.default_rng(seed)
    params = next(node.layer.params for node in net.nodes if node.layer.params)
    return rng.standard_normal(net.blobs["x0"].shape), [rng.standard_normal(p.shape) for p in params]


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize(("settings", "shape"), RANKS)
def test_a_convolution_of_any_rank_is_the_sum_over_each_window(settings, shape, group):
    net = net_of("Convolution", f"num_output: 2 group: {group} {settings}", shape)
    x, (w, bias) = random_for(net)
    np.testing.assert_allclose(values(net, x, (w, bias)), plain_convolution(net, x, w, bias, group))


@pytest.mark.parametrize(("settings", "shape"), RANKS)
def test_a_deconvolution_of_any_rank_is_the_transpose_of_the_convolution_with_its_weights(settings, shape):
    up = net_of("Deconvolution", f"num_output: 6 bias_term: false {settings}", shape)
    down = net_of("Convolution", f"num_output: 4 bias_term: false {settings}", up.blobs["y0"].shape)
    assert down.blobs["y0"].shape == shape
    x, (w,) = random_for(up)
    image = np.random.default_rng(2).standard_normal(up.blobs["y0"].shape)
    through = (values(up, x, (w,)) * image).sum()
    np.testing.assert_allclose(through, (plain_convolution(down, image, w, np.zeros(4), 1) * x).sum())


@pytest.mark.parametrize(("settings", "shape"), [each for each in RANKS if each[0] != "axis: 3"])
def test_im2col_of_any_rank_has_the_windows_of_the_convolution_as_channels(settings, shape):
    columns, conv = net_of("Im2col", settings, shape), net_of("Convolution", f"num_output: 2 {settings}", shape)
    x, (w, _) = random_for(conv)
    axis = windows_of(conv)[0]
    y = np.moveaxis(values(columns, x, ()), axis, -1) @ w.reshape(2, -1).T
    np.testing.assert_allclose(np.moveaxis(y, -1, axis), plain_convolution(conv, x, w, np.zeros(2), 1))


def test_a_clip_of_one_frame_is_convolved_as_the_image():
    clip = net_of("Convolution", "num_output: 3 kernel_size: 1 kernel_size: 3 kernel_size: 3", (2, 4, 1, 5, 6))
    image = layer_of('type: "Convolution" convolution_param { num_output: 3 kernel_size: 3 }', (2, 4, 5, 6))
    x, (w, bias) = random_for(clip)
    expected = forward(image, x[:, :, 0], ws=(w[:, :, 0], bias)).arrays["y0"]
    np.testing.assert_allclose(values(clip, x, (w, bias))[:, :, 0], expected, rtol=1e-12)


@pytest.mark.parametrize(
    "kind, settings, shape, weights, top",
    [
        ("Convolution", "num_output: 6 kernel_size: 3 group: 2", (2, 4, 5, 6, 7), (6, 2, 3, 3, 3), (2, 6, 3, 4, 5)),
        ("Deconvolution", "num_output: 6 kernel_size: 3 group: 2", (2, 4, 5, 6, 7), (4, 3, 3, 3, 3), (2, 6, 7, 8, 9)),
        ("Convolution", "num_output: 6 kernel_size: 3", (2, 4, 5), (6, 4, 3), (2, 6, 3)),
        ("Convolution", "num_output: 6 axis: 1", (2, 4), (6, 4), (2, 6)),
        ("Convolution", "num_output: 6 kernel_size: 3 axis: 2", (2, 3, 4, 5, 6), (6, 4, 3, 3), (2, 3, 6, 3, 4)),
    ],
)
def test_weights_and_tops_have_caffes_shapes_and_fillers_see_them(kind, settings, shape, weights, top):
    net = net_of(kind, f"{settings} weight_filler {{ type: 'xavier' }}", shape)
    (layer,) = (node.layer for node in net.nodes if node.layer.params)
    assert (layer.type, layer.name) == (kind, "conv") and net.blobs["y0"].shape == top
    assert [p.shape for p in layer.params] == [weights, (6,)]
    assert fan(layer.params[0].filler, weights) == np.prod(weights) / weights[0]
    assert fill(layer.params[0].filler, weights, 1).shape == weights


def test_parts_are_named_after_the_layer_and_gradients_and_losses_go_through_them():
    more = 'propagate_down: false propagate_down: true loss_weight: 0 loss_weight: 2 param { name: "w" lr_mult: 3 }'
    net = net_of("Convolution", "num_output: 2 kernel_size: 2", (1, 2, 3, 3, 3), more, count=2)
    names = ["conv/images", "conv/images1", "conv", "conv/top", "conv/top1"]
    assert [node.layer.name for node in net.nodes[2:]] == names
    before, other, conv, _, after = net.nodes[2:]
    assert before.propagate == (False,) and other.propagate == (True,) and conv.propagate == (False, True)
    assert after.loss_weights == (2.0,) and conv.loss_weights == (0.0, 0.0)
    assert conv.params[0] == "w.shared" and conv.layer.params[0].lr_mult == 3


def test_caffe_takes_no_bytes_for_the_parts():
    net = net_of("Convolution", "num_output: 2 kernel_size: 2", (1, 2, 3, 3, 3))
    assert net.activation_bytes == caffe_bytes(net).data == 4 * (2 * 27 + 2 * 8)


@pytest.mark.parametrize(
    "settings, shape, remedy",
    [
        (
            "kernel_h: 2 kernel_w: 2",
            (1, 2, 3, 3, 3),
            "kernel_h or kernel_w, which are for 2 spatial axes.* has 3; give k",
        ),
        ("kernel_size: 2 pad_h: 1", (1, 2, 9), "pad_h or pad_w, .* has 1; give pad once"),
        ("kernel_size: 2 stride_w: 1", (1, 2, 3, 3, 3), "give stride once, or once for each of them"),
        ("kernel_size: 2 kernel_size: 2", (1, 2, 3, 3, 3), "kernel_size 2 times; give it once, .* the 3 spatial axes"),
        ("kernel_size: 2 stride: 1 stride: 2", (1, 2, 9), "stride 2 times; give it once, .* the 1 spatial axes"),
        ("kernel_size: 2 pad: 1 pad: 1 pad: 1 pad: 1", (1, 2, 3, 3, 3), "pad 4 times; give it once"),
        ("", (1, 2, 3), "kernel_size 0 times; give it once"),
        (
            "kernel_size: 2 kernel_size: 0 kernel_size: 1",
            (1, 2, 3, 3, 3),
            "has a kernel of 2 x 0 x 1; set it to at least 1",
        ),
        ("kernel_size: 2 stride: 0", (1, 2, 3, 3, 3), "has a stride of .*; set it to at least 1"),
        (
            "kernel_size: 4",
            (1, 2, 3, 4, 4),
            "windows of 4 x 4 x 4 on a padded bottom of 3 x 4 x 4; use a smaller kernel",
        ),
        ("kernel_size: 1 axis: 3", (1, 2, 3), "names axis 3, but its bottom has 3 axes: use -3 to 2"),
        ("kernel_size: 1 group: 2", (1, 3, 4, 4, 4), "group 2, which must divide its 3 input"),
    ],
)
def test_an_impossible_convolution_is_refused_with_a_remedy(settings, shape, remedy):
    with pytest.raises(InputError, match=f"layer 'conv' .*{remedy}"):
        net_of("Convolution", f"num_output: 2 {settings}", shape)


@pytest.mark.parametrize(
    "kind, settings, shape, remedy",
    [
        (
            "Deconvolution",
            "num_output: 2 kernel_size: 3 pad: 2",
            (1, 2, 1, 1, 1),
            "top to -1 x -1 x -1; use a smaller pad",
        ),
        ("Im2col", "kernel_size: 1 axis: 2", (1, 2, 3), "channels in axis 2, the last of its bottom"),
        ("Im2col", "kernel_size: 4", (1, 2, 3, 4, 4), "use a smaller kernel"),
        (
            "ConvolutionDepthwise",
            "num_output: 2 kernel_size: 1",
            (1, 2, 3),
            "takes N x C x H x W, .*: Reshape it first",
        ),
        ("AsImages", "", (1, 2, 3), "only a Convolution makes, as one of its parts; remove it"),
    ],
)
def test_other_types_are_refused_with_a_remedy(kind, settings, shape, remedy):
    with pytest.raises(InputError, match=remedy):
        net_of(kind, settings, shape)


@pytest.mark.parametrize(
    "more, remedy",
    [
        ("loss_weight: 1 loss_weight: 1", "gives 2 loss_weight values for 1 blobs; give one for each, or none"),
        ("propagate_down: true propagate_down: true", "gives 2 propagate_down values for 1 blobs"),
        ("param { } param { } param { }", "has 3 'param' blocks for 2 parameters; remove some"),
        ('top: "y1"', "1 bottoms and 2 tops; give each bottom its own top"),
    ],
)
def test_param_blocks_and_loss_weights_are_checked_as_in_any_layer(more, remedy):
    with pytest.raises(InputError, match=f"layer 'conv' {remedy}|layer 'conv' has {remedy}"):
        net_of("Convolution", "num_output: 2 kernel_size: 1", (1, 2, 3, 3, 3), more)


def test_types_of_parts_are_not_offered():
    with pytest.raises(InputError) as caught:
        net_of("Nothing", "", (1, 2, 3))
    assert "AsImages" not in str(caught.value)
