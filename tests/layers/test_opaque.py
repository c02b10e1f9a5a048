"""Layers whose code is not here: planned with the shapes given, and refused when they run."""

import pytest

from layermem.errors import InputError
from layermem.graph.net import Net, NetOptions
from layermem.layers.base import Tensor
from layermem.layers.opaque import OpaqueLayer, given_shapes
from layermem.proto.read import read_net_text
from layermem.proto.schema import LayerParameter

NET = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 4 } }
layer { name: "m" type: "%s" bottom: "ip" bottom: "x" top: "y" top: "z" param { lr_mult: 1 } %s }
layer { name: "loss" type: "EuclideanLoss" bottom: "y" bottom: "z" top: "loss" }
"""
SHAPES = {"y": (2, 5), "z": (2, 5)}


def test_backward_reads_all_bottoms_and_tops_and_forward_runs_once():
    layer = OpaqueLayer(LayerParameter(name="m", type="Mish", bottom=["x"], top=["y"]), 0, [Tensor((2,))], [(3,)], "no")
    assert layer.backward(("dx0",))[0].reads == ("x0", "y0", "dy0") and layer.backward(()) == ()
    assert layer.recompute() is None and layer.type == "Mish" and layer.record.refusal == "no"


@pytest.mark.parametrize("block", ["", "broadcast_mul_param { axis: 1 }"])
def test_a_type_that_is_not_here_is_planned_with_the_shapes_of_its_tops(block):
    text = NET % ("BroadcastMul", block)
    net = Net(read_net_text(text, "n"), 0, NetOptions(inputs=SHAPES))
    assert net.blobs["y"].shape == (2, 5) and net.layers[2].type == "BroadcastMul"
    what = "n:4: layer 'm' has type 'BroadcastMul', which layermem does not have; .* cannot run"
    with pytest.raises(InputError, match=what):
        net.check_runnable("cpu", lambda record, step: True)
    with pytest.raises(InputError, match=r"; give --input y=\.\.\. --input z=\.\.\. to plan it$"):
        Net(read_net_text(text, "n"), 0, NetOptions(inputs={"y": (2, 5)}))


def test_shapes_are_taken_if_all_are_given_and_possible():
    param = LayerParameter(top=["y", "z"])
    assert given_shapes(param, SHAPES) == [(2, 5), (2, 5)] and given_shapes(param, {"y": (2,)}) == []
    assert given_shapes(LayerParameter(), SHAPES) == []
    with pytest.raises(InputError, match="is given the shape 0 for 'z'; give positive sizes"):
        given_shapes(param, SHAPES | {"z": (0,)})


def test_a_type_that_is_like_one_may_be_planned_too():
    text = NET % ("SeLu", "")
    with pytest.raises(
        InputError, match=r"did you mean 'ReLU'\? or give --input y=\.\.\. --input z=\.\.\. to plan it$"
    ):
        Net(read_net_text(text, "n"), 0, NetOptions(inputs={}))
