"""Nets whose gradients Caffe gets wrong are pointed out, and no others."""

from pathlib import Path

import pytest

from layermem.api import build_net
from layermem.backends.reference import ReferenceDevice
from layermem.graph.net import Net
from layermem.graph.train import forward_graph, train_graph
from layermem.proto.read import read_net_text
from tests.nets import NETS

PROTOTXT = Path(__file__).resolve().parents[2] / "prototxt"
TOP = """
    layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 4 dim: 4 } } }
    layer { name: "conv" type: "Convolution" bottom: "data" top: "x"
            convolution_param { num_output: 3 kernel_size: 1 } }
"""
END = """
    layer { name: "ip" type: "InnerProduct" bottom: "%s" top: "out" inner_product_param { num_output: 2 } }
    layer { name: "loss" type: "Reduction" bottom: "out" top: "loss" loss_weight: 1 }
"""


def layer(name, kind, bottom, top, more=""):
    return f'layer {{ name: "{name}" type: "{kind}" bottom: "{bottom}" top: "{top}" {more} }}\n'


def warnings(*middle, end="x", top=TOP):
    net = Net(read_net_text(top + "".join(middle) + END % end), phase=0)
    assert forward_graph(net, ReferenceDevice()).warnings == ()
    return train_graph(net, ReferenceDevice()).warnings


RELU = layer("relu", "ReLU", "y", "y")


@pytest.mark.parametrize("kind", ["LRN", "Sigmoid", "TanH", "Softmax", "Exp", "ELU"])
def test_a_top_that_backward_reads_and_a_later_layer_overwrites(kind):
    (warning,) = warnings(layer("a", kind, "x", "y"), RELU, end="y")
    assert warning.startswith(f"layer 'a' ({kind}) reads its top 'y' in backward, but layer 'relu' (ReLU) has")
    assert "wrong in BVLC Caffe" in warning and "give the top a name of its own" in warning


@pytest.mark.parametrize("kind", ["Pooling", "Convolution", "BatchNorm", "Scale", "Bias", "Dropout", "ReLU"])
def test_a_top_that_backward_does_not_read_may_be_overwritten(kind):
    more = {"Pooling": "pooling_param { kernel_size: 2 }"}.get(kind, "")
    more = more or ("convolution_param { num_output: 3 kernel_size: 1 }" if kind == "Convolution" else "")
    assert warnings(layer("a", kind, "x", "y", more), RELU, end="y") == ()


@pytest.mark.parametrize(
    "kind", ["ReLU", "Sigmoid", "TanH", "ELU", "PReLU", "BatchNorm", "Scale", "Dropout", "Softmax"]
)
def test_layers_that_are_right_in_place_alone(kind):
    assert warnings(layer("a", kind, "x", "x")) == ()


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("LRN", ""),
        ("Log", "log_param { shift: 9 }"),
        ("BNLL", ""),
        ("Power", "power_param { power: 1 }"),
        ("Clip", "clip_param { min: 0 max: 1 }"),
    ],
)
def test_layers_that_are_wrong_in_place(kind, more):
    (warning,) = warnings(layer("a", kind, "x", "x", more))
    assert warning.startswith(f"layer 'a' ({kind}) works in place, but its backward needs what it overwrites")


def test_signs_that_a_relu_reads_may_be_scaled_but_not_changed():
    relu = layer("relu", "ReLU", "x", "x")
    assert warnings(relu, layer("drop", "Dropout", "x", "x")) == ()
    (warning,) = warnings(relu, layer("norm", "BatchNorm", "x", "x"))
    assert "layer 'relu' (ReLU) reads its bottom 'x' in backward, but layer 'norm' (BatchNorm) has" in warning


def test_an_array_under_another_name_is_the_same_array():
    flat = layer("flat", "Flatten", "y", "f")
    (warning,) = warnings(layer("a", "TanH", "x", "y"), flat, layer("relu", "ReLU", "f", "f"), end="f")
    assert warning.startswith("layer 'a' (TanH) reads its top 'y'")
    one = layer("cat", "Concat", "y", "f")
    assert len(warnings(layer("a", "TanH", "x", "y"), one, layer("relu", "ReLU", "f", "f"), end="f")) == 1


def test_a_layer_without_a_gradient_cannot_have_a_wrong_one():
    frozen = TOP.replace("kernel_size: 1 }", "kernel_size: 1 } param { lr_mult: 0 } param { lr_mult: 0 }")
    assert warnings(layer("a", "LRN", "x", "y"), RELU, end="y", top=frozen) == ()


def test_weights_that_do_not_learn_do_not_need_the_bottom():
    """ip reads x for the gradient of its weights, and no op does if they have none."""
    side = layer("flat", "Flatten", "x", "f") + layer("relu", "ReLU", "f", "f")
    inner = layer("side", "InnerProduct", "x", "s", "inner_product_param { num_output: 2 } %s")
    tail = layer("quiet", "Reduction", "s", "r", "loss_weight: 1")
    (warning,) = warnings(inner % "", tail, side, end="f")
    assert warning.startswith("layer 'side' (InnerProduct) reads its bottom 'x'")
    still = "param { lr_mult: 0 } param { lr_mult: 0 }"
    assert warnings(inner % still, tail, side, end="f") == ()


@pytest.mark.samples(9)
@pytest.mark.parametrize("path", sorted(PROTOTXT.glob("*/train_val.prototxt")), ids=lambda path: path.parent.name)
def test_no_net_in_prototxt_has_a_hazard(path):
    if path.stat().st_size < 2e5:
        assert train_graph(build_net(path), ReferenceDevice()).warnings == ()


@pytest.mark.parametrize("name", NETS)
def test_no_tiny_net_does(name):
    assert train_graph(Net(read_net_text(NETS[name]), 0), ReferenceDevice()).warnings == ()
