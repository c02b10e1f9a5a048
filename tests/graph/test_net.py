"""Blobs and types as a net wires them."""

import pytest

from layermem.backends.reference import ReferenceDevice
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.graph.train import train_graph
from layermem.proto.read import read_net_text

TOP = """
    layer { name: "in" type: "DummyData" top: "x" top: "t"
            dummy_data_param { shape { dim: 2 dim: 3 } shape { dim: 2 } } }
    layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 3 } }
"""
LOSS = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "y" bottom: "t" %s }\n'


def net(*layers):
    return Net(read_net_text(TOP + "".join(layers)), 0)


def test_a_loss_that_names_no_top_is_the_loss_that_names_its_own():
    bare, named = net(LOSS % ""), net(LOSS % 'top: "loss"')
    assert bare.nodes[-1].tops == ("loss",) == bare.outputs and bare.nodes[-1].loss_weights == (1.0,)
    ops = [[op.name for op in train_graph(each, ReferenceDevice()).ops] for each in (bare, named)]
    assert ops[0] == ops[1] and "ip.wgrad" in ops[0]


def test_its_top_takes_no_name_that_a_blob_has():
    loss = LOSS.replace('"loss"', '"t"') % ""
    assert net(loss).nodes[-1].tops == ("t(automatic)",)


def test_other_layers_do_not_get_tops_that_they_do_not_name():
    with pytest.raises(InputError, match="layer 'a' has 0 tops; Accuracy takes"):
        net('layer { name: "a" type: "Accuracy" bottom: "y" bottom: "t" }')


@pytest.mark.parametrize(
    ("wrote", "meant"),
    [("relu", "ReLU"), ("Convolutoin", "Convolution"), ("INNER_PRODUCT", "InnerProduct"),
     ("softmax_loss", "SoftmaxWithLoss")],
)  # fmt: skip
def test_a_type_that_is_nearly_right_is_answered_with_the_right_one(wrote, meant):
    with pytest.raises(InputError, match=f":5: layer 'a' has type '{wrote}', .*; did you mean '{meant}'\\?"):
        net(f'layer {{ name: "a" type: "{wrote}" bottom: "y" top: "z" }}')


def test_a_type_like_no_other_is_answered_with_all_there_are():
    with pytest.raises(InputError, match="has type 'Python', which layermem does not have; it has: AbsVal Accuracy "):
        net('layer { name: "a" type: "Python" bottom: "y" top: "z" }')
