"""What a valid net may not mean."""

import pytest

from layermem.backends.reference import ReferenceDevice
from layermem.graph.net import Net, NetOptions
from layermem.graph.train import forward_graph, train_graph
from layermem.graph.warnings import net_warnings
from layermem.proto.read import read_net_text

HEAD = """
    layer { name: "in" type: "DummyData" top: "x" top: "t"
            dummy_data_param { shape { dim: 2 dim: 3 } shape { dim: 2 } } }
    layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 3 } }
"""
LOSS = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "y" bottom: "t" top: "l" %s }\n'
POWER = 'layer { name: "half" type: "Power" bottom: "l" top: "h" power_param { scale: 0.5 } loss_weight: 1 }\n'
STAGED = LOSS % 'include { stage: "train" } exclude { not_stage: "deploy" }'.replace("exclude", "include")


def net(text, phase=0, **state):
    return Net(read_net_text(HEAD + text), phase, NetOptions(**state))


def test_a_plain_net_has_no_warnings():
    assert net_warnings(net(LOSS % "")) == net_warnings(net("", 1)) == ()


def test_a_stage_that_no_rule_names_is_answered_with_those_that_there_are():
    assert net_warnings(net(STAGED, stages=["train", "deploy"])) == ()
    (warning,) = net_warnings(net(STAGED, stages=["tarin"]))
    assert warning == "no rule of the net names stage 'tarin'; did you mean 'train'?"
    (warning,) = net_warnings(net(STAGED, stages=["foo", "foo"]))
    assert warning == "no rule of the net names stage 'foo'; its stages are train deploy"
    (warning,) = net_warnings(net(LOSS % "", stages=["foo"]))
    assert warning == "no rule of the net names stage 'foo'; it has none"


def test_a_train_net_without_a_loss_is_a_forward_pass():
    (warning,) = train_graph(net(""), ReferenceDevice()).warnings
    assert warning.startswith("the net has no loss: the step is a forward pass")
    assert not forward_graph(net("", 1), ReferenceDevice()).warnings


def test_a_loss_that_another_layer_reads_is_told_apart_from_caffes():
    (warning,) = train_graph(net(LOSS % "" + POWER), ReferenceDevice()).warnings
    assert warning.startswith(
        "layer 'loss' (SoftmaxWithLoss) has a top that another layer reads: its default loss_weight"
    )


@pytest.mark.parametrize("weight", ["0", "1", "0.5"])
def test_a_loss_that_states_its_weight_is_the_same_in_both(weight):
    assert not train_graph(net(LOSS % f"loss_weight: {weight}" + POWER), ReferenceDevice()).warnings
