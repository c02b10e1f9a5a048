"""SPP, InfogainLoss and BN: their parts, and numbers by hand."""

import numpy as np
import pytest

from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.proto.read import read_net_text
from layermem.proto.schema import BlobProto
from layermem.solver.feeds import Feeds
from tests.layers.harness import forward


def net(settings, shape=(2, 3, 6, 5), more="", tops='top: "spp"', kind="SPP"):
    dims = " ".join(f"dim: {d}" for d in shape)
    return Net(
        read_net_text(
            f"""layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ {dims} }} }} }}
                layer {{ name: "spp" type: "{kind}" bottom: "data" {tops} spp_param {{ {settings} }} {more} }}"""
        ),
        0,
    )


def values(net, x):
    """Every blob of a net of layers with one top, computed by the reference."""
    blobs = {"data": x}
    for node in net.nodes[1:]:
        ones = [np.ones(param.tensor.shape) for param in node.layer.params]
        run = forward(node.layer, *(blobs[name] for name in node.bottoms), ws=ones, overlaid=False)
        blobs[node.tops[0]] = run.arrays["y0"]
    return blobs


def test_a_level_has_windows_that_cover_the_image():
    windows = {
        node.layer.name: [(w.kernel, w.stride, w.pad) for w in node.layer.record.windows]
        for node in net("pyramid_height: 3", (1, 1, 13, 6)).nodes
        if node.layer.type == "Pooling"
    }
    assert windows == {
        "spp/pool0": [(13, 13, 0), (6, 6, 0)],
        "spp/pool1": [(7, 7, 1), (3, 3, 0)],
        "spp/pool2": [(4, 4, 2), (2, 2, 1)],
    }


def test_the_top_is_all_levels_side_by_side_each_channel_by_channel():
    x = np.arange(32.0).reshape(1, 2, 4, 4)
    it = net("pyramid_height: 2", x.shape)
    assert it.blobs["spp"].shape == (1, 2 * (1 + 4))
    expected = [15, 31, 5, 7, 13, 15, 21, 23, 29, 31]
    np.testing.assert_array_equal(values(it, x)["spp"], [expected])


def test_averages_divide_by_the_window():
    x = np.arange(16.0).reshape(1, 1, 4, 4)
    y = values(net("pyramid_height: 2 pool: AVE", x.shape), x)["spp"]
    np.testing.assert_allclose(y, [[7.5, 2.5, 4.5, 10.5, 12.5]])


def test_a_pyramid_of_one_level_is_a_pooling_of_the_whole_image_with_four_axes():
    it = net("pyramid_height: 1")
    assert [node.layer.type for node in it.nodes] == ["Input", "Pooling"]
    assert it.nodes[1].layer.name == "spp" and it.blobs["spp"].shape == (2, 3, 1, 1)


def test_parts_are_named_after_the_layer_and_the_last_has_its_name():
    names = [node.layer.name for node in net("pyramid_height: 2").nodes[1:]]
    assert names == ["spp/pool0", "spp/pool1", "spp/flat0", "spp/flat1", "spp"]


def test_propagate_down_of_the_layer_goes_to_its_parts():
    nodes = net("pyramid_height: 2", more="propagate_down: false loss_weight: 2").nodes
    assert [node.propagate for node in nodes if node.layer.type == "Pooling"] == [(False,), (False,)]
    assert nodes[-1].loss_weights == (2.0,)


@pytest.mark.parametrize(
    "settings, more, remedy",
    [
        ("", {}, "has no pyramid_height; set spp_param"),
        ("pyramid_height: 3", {"shape": (1, 1, 5, 8)}, "layer 'spp' cuts 5 .* use pyramid_height 2, or"),
        ("pyramid_height: 2", {"shape": (1, 1, 5)}, "N x C x H x W"),
        ("pyramid_height: 2", {"more": "param { lr_mult: 1 }"}, "has 1 'param' blocks for 0"),
        ("pyramid_height: 2", {"tops": 'top: "a" top: "b"'}, "has 2 tops; SPP takes 1"),
        ("pyramid_height: 2", {"tops": ""}, "has 0 tops; SPP takes 1"),
        ("pyramid_height: 2", {"kind": "Spp"}, "did you mean 'SPP'"),
    ],
)
def test_an_impossible_pyramid_is_refused_with_a_remedy(settings, more, remedy):
    with pytest.raises(InputError, match=remedy):
        net(settings, **more)


# ---- InfogainLoss ---------------------------------------------------------------------------------------------------

GAIN = """
    layer { name: "x" type: "Input" top: "x" top: "t"
            input_param { shape { dim: 2 dim: 3 } shape { dim: 2 } } }
    layer { name: "gain" type: "InfogainLoss" bottom: "x" bottom: "t" top: "l" %s
            infogain_loss_param { source: "H.binaryproto" } }
"""


def write_matrix(folder, values):
    blob = BlobProto(data=np.asarray(values, np.float32).reshape(-1).tolist())
    blob.shape.dim.extend((1, 1, *np.shape(values)))
    (folder / "H.binaryproto").write_bytes(blob.SerializeToString())


def test_the_matrix_of_a_file_comes_from_a_layer_before_the_loss_and_needs_no_file_to_plan():
    it = Net(read_net_text(GAIN % "propagate_down: true propagate_down: false"), 0)
    assert [(n.layer.name, n.layer.type, n.bottoms) for n in it.nodes[1:]] == [
        ("gain/matrix", "InfogainMatrix", ()),
        ("gain", "InfogainLoss", ("x", "t", "gain/matrix")),
    ]
    assert it.blobs["gain/matrix"].shape == (1, 1, 3, 3)
    assert it.nodes[-1].propagate == (True, False, False)


def test_every_batch_has_the_matrix_of_the_file(tmp_path):
    write_matrix(tmp_path, np.arange(9).reshape(3, 3))
    it = Net(read_net_text(GAIN % "", str(tmp_path / "net.prototxt")), 0)
    feeds = Feeds([it], seed=1)
    feeds.give(0, "x", [np.zeros((2, 3), np.float32), np.zeros(2, np.float32)])
    for _ in range(2):
        (matrix,) = feeds.next(0)["gain/matrix"]
        np.testing.assert_array_equal(matrix, np.arange(9).reshape(1, 1, 3, 3))


def test_a_matrix_of_another_size_is_refused_with_the_file(tmp_path):
    write_matrix(tmp_path, np.eye(2))
    it = Net(read_net_text(GAIN % "", str(tmp_path / "net.prototxt")), 0)
    with pytest.raises(InputError, match=r"has 4 numbers in '.*H.binaryproto', where it needs 1x1x3x3"):
        Feeds([it], seed=1)


NORM = """
    layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 2 dim: 2 } } }
    layer { name: "bn" type: "BN" bottom: "data" top: "%s" %s bn_param { %s } }
"""


@pytest.mark.parametrize("top", ["y", "data"])
def test_the_other_tops_of_a_bn_of_segnet_are_the_statistics_of_the_batch(top):
    it = Net(read_net_text(NORM % (top, 'top: "m" top: "v" loss_weight: [0, 0, 3]', "bn_mode: LEARN")), 0)
    x = np.random.default_rng(0).standard_normal((2, 3, 2, 2))
    found = values(it, x)
    np.testing.assert_allclose(found["m"], x.mean(axis=(0, 2, 3)).reshape(1, 3, 1, 1))
    np.testing.assert_allclose(found["v"], x.var(axis=(0, 2, 3)).reshape(1, 3, 1, 1))
    assert [n.layer.name for n in it.nodes if n.bottoms == ("data",) and any(n.propagate)] == ["bn"]
    assert {n.tops[0]: n.loss_weights for n in it.nodes if any(n.loss_weights)} == {"v": (3.0,)}


@pytest.mark.parametrize(
    "more, settings, words",
    [
        ('top: "m"', "momentum: 0.5", "has 2 tops; the BN of SegNet alone"),
        ('top: "m"', "bn_mode: INFERENCE", "in bn_mode LEARN: name one top"),
        ('top: "m" loss_weight: 1', "bn_mode: LEARN", "gives 1 loss_weight values for 2 blobs"),
    ],
)
def test_other_bns_have_one_top(more, settings, words):
    with pytest.raises(InputError, match=words):
        Net(read_net_text(NORM % ("y", more, settings)), 0)
