"""Nets as pictures, without shapes and a plan."""

import re

import pytest
from google.protobuf import text_format

from layermem import caffe
from layermem.errors import InputError
from layermem.proto.schema import NetParameter

NET = """
name: "two phases"
layer { name: "unread" type: "Input" top: "unread" }
layer { name: "train" type: "Data" top: "data" top: "label" include { phase: TRAIN } data_param { source: "none" } }
layer { name: "test" type: "Data" top: "data" top: "label" include { phase: TEST } data_param { source: "none" } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" param { lr_mult: 1 } param { lr_mult: 2 }
        convolution_param { num_output: 8 kernel_size: 3 stride: 2 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "mine" type: "TypeOfAFork" bottom: "conv" top: "mine" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "mine" bottom: "label" top: "loss" }
"""
OLD = """
input: "x" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8
layers { name: "conv" type: CONVOLUTION bottom: "x" top: "conv" convolution_param { num_output: 2 kernel_size: 3 } }
"""


def message(text):
    return text_format.Parse(text, NetParameter())


def drawn(net, rankdir="LR", **options):
    """The names and details in the SVG picture of a net, and how many wires it has."""
    pytest.importorskip("igraph")
    svg = caffe.draw.draw_net(net, rankdir, "svg", **options).decode()
    return set(re.findall(r">([^<>]+)</text>", svg)), svg.count('class="wire"')


@pytest.mark.parametrize("rankdir", ["LR", "TB"])
def test_every_layer_and_every_blob_that_is_read_is_drawn(rankdir):
    texts, wires = drawn(message(NET), rankdir)
    assert {"unread", "train", "test", "conv", "relu", "mine", "loss", "TypeOfAFork"} <= texts
    assert "Convolution 3x3/2, 8" in texts and wires == 2 + 1 + 1 + 1 + 2  # data and label come from either phase


def test_a_phase_leaves_layers_out_and_multipliers_are_drawn_where_they_are_asked_for():
    texts, wires = drawn(message(NET), phase=caffe.TEST, display_lrm=True)
    assert "train" not in texts and "Convolution 3x3/2, 8, lr 1 2" in texts and wires == 5


def test_a_net_of_an_old_format_is_drawn():
    texts, wires = drawn(message(OLD))
    assert {"conv", "Convolution 3x3, 2"} <= texts and wires == 1


def test_the_end_of_the_name_says_the_format(tmp_path):
    pytest.importorskip("igraph")
    pytest.importorskip("matplotlib")
    for form, start in (("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF")):
        caffe.draw.draw_net_to_file(message(NET), tmp_path / f"net.{form}", "TB")
        assert (tmp_path / f"net.{form}").read_bytes().startswith(start)
    with pytest.raises(ValueError, match=r"no picture can be written as 'xyz' \(choose from"):
        caffe.draw.draw_net_to_file(message(NET), str(tmp_path / "net.xyz"))


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(InputError, match=r"unknown rankdir 'BT' \(choose from TB, LR\)"):
        caffe.draw.draw_net(message(NET), "BT")
    train = 'name: "n" layer { name: "x" type: "Input" top: "x" include { phase: TRAIN } }'
    with pytest.raises(InputError, match="net 'n' has no layers to draw"):
        caffe.draw.draw_net(message(train), "LR", phase=caffe.TEST)
