"""Nets written in Python, as BVLC Caffe's python/caffe/test/test_net_spec.py writes them."""
# ruff: noqa: C408  dict(..) as scripts for pycaffe write it

import re
from pathlib import Path

import pytest

import layermem
from layermem import L, NetSpec, P, to_proto
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.proto.read import read_net_text
from layermem.spec import Layers, net_file
from layermem.spec.net_spec import MissingTop

SHAPES = [dict(dim=[2, 1, 28, 28]), dict(dim=[2, 1, 1, 1])]
XAVIER = dict(type="xavier")


def lenet():
    n = NetSpec()
    n.data, n.label = L.DummyData(shape=SHAPES, ntop=2)
    n.conv1 = L.Convolution(n.data, kernel_size=5, num_output=20, weight_filler=XAVIER)
    n.pool1 = L.Pooling(n.conv1, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.ip1 = L.InnerProduct(n.pool1, num_output=10, param=[dict(lr_mult=1), dict(lr_mult=2)])
    n.relu1 = L.ReLU(n.ip1, in_place=True)
    n.loss = L.SoftmaxWithLoss(n.relu1, n.label, include=dict(phase=0))
    return n


TEXT = """layer {
  name: "conv1"
  type: "Convolution"
  bottom: "data"
  top: "conv1"
  convolution_param {
    num_output: 20
    kernel_size: 5
    weight_filler {
      type: "xavier"
    }
  }
}
"""


def test_a_net_is_written_as_prototxt_that_is_read_back():
    text = str(lenet().to_proto())
    assert TEXT in text
    net = Net(read_net_text(text), 0)
    assert [layer.name for layer in net.layers] == ["data", "conv1", "pool1", "ip1", "relu1", "loss"]
    assert net.blobs["ip1"].shape == (2, 10)
    assert [each.param.lr_mult for name, each in net.params.items() if each.layer == "ip1"] == [1, 2]


def test_an_inplace_layer_has_its_bottom_as_its_top_and_a_name_of_its_own():
    layer = lenet().to_proto().layer[4]
    assert (layer.name, list(layer.bottom), list(layer.top)) == ("relu1", ["ip1"], ["ip1"])
    assert list(lenet().to_proto().layer[5].bottom) == ["ip1", "label"]


def test_tops_without_names_are_numbered_by_type():
    data, label = L.DummyData(shape=SHAPES, ntop=2)
    conv = L.Convolution(L.Convolution(data, num_output=3, kernel_size=1), num_output=2, kernel_size=1)
    net = to_proto(L.EuclideanLoss(conv, label), L.Silence(conv, ntop=0))
    names = [(layer.name, *layer.top) for layer in net.layer]
    assert names == [
        ("DummyData1", "DummyData1", "DummyData2"),
        ("Convolution1", "Convolution1"),
        ("Convolution2", "Convolution2"),
        ("EuclideanLoss1", "EuclideanLoss1"),
        ("Silence1",),
    ]
    assert str(conv.to_proto()) == str(to_proto(conv))


def test_layers_stand_behind_those_that_they_read_and_only_once():
    n = NetSpec()
    hidden = L.Input(shape=dict(dim=[1, 2]))
    n.last = L.Eltwise(L.ReLU(hidden), L.Sigmoid(hidden))
    assert [layer.type for layer in n.to_proto().layer] == ["Input", "ReLU", "Sigmoid", "Eltwise"]


def test_a_net_of_thousands_of_layers_is_written():
    top = L.Input(shape=dict(dim=[1, 2]))
    for _ in range(3000):
        top = L.ReLU(top, in_place=True)
    assert len(top.to_proto().layer) == 3001


def test_a_layer_without_tops_is_named_by_its_attribute():
    n = NetSpec()
    n.data = L.DummyData(shape=dict(dim=3))
    n.silence = L.Silence(n.data, ntop=0)
    assert [layer.name for layer in n.to_proto().layer] == ["data", "silence"]
    assert repr(n.silence) == "<Function Silence>" and repr(n.data) == "<Top 0 of DummyData>"


def test_names_can_be_keys_and_are_listed_updated_and_deleted():
    n = lenet()
    n["conv1/2"] = L.Convolution(n["pool1"], num_output=1, kernel_size=1)
    n.update("conv1/2", dict(num_output=4))
    assert n.keys()[-1] == "conv1/2" and n.vals()[-1] is n["conv1/2"] and "conv1/2" in n
    assert n.to_proto().layer[-1].convolution_param.num_output == 4
    del n["conv1/2"]
    del n.loss
    assert n.keys() == ["data", "label", "conv1", "pool1", "ip1", "relu1"]
    assert repr(n) == "<NetSpec: data label conv1 pool1 ip1 relu1>" and "pool1" in dir(n)


def test_an_update_that_is_refused_changes_nothing():
    n = lenet()
    with pytest.raises(InputError, match="did you mean 'num_output'"):
        n.update("conv1", dict(num_outputs=3))
    assert str(n.to_proto()) == str(lenet().to_proto())


def test_a_name_that_is_not_there_is_an_attribute_error_with_the_one_that_is_meant():
    n = lenet()
    with pytest.raises(MissingTop, match=r"test_net_spec.py:\d+: this net has no top 'pol1'; did you mean 'pool1'\?"):
        n.pol1  # noqa: B018
    with pytest.raises(KeyError, match="assign it before it is read"):
        n["anything"]
    assert not hasattr(n, "anything") and not hasattr(n, "__wrapped__")


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda n: L.Silence(L.DummyData(ntop=2), ntop=0), "Silence input 0 is not a Top (type is <class 'tuple'>)"),
        (lambda n: L.ReLU("ip1"), "ReLU input 0 is not a Top (type is <class 'str'>)"),
        (lambda n: n.__setattr__("data", L.DummyData(ntop=2)), "n.data is given 2 tops; give each a name: n.data,"),
        (lambda n: n.__setattr__("data", 3), "n.data is given int; give it a layer's top"),
    ],
)
def test_a_value_that_is_no_top_is_refused_where_it_is_written(write, says):
    with pytest.raises(InputError) as refused:
        write(lenet())
    assert says in str(refused.value) and refused.value.path == __file__ and refused.value.line


def test_errors_are_of_the_types_that_pycaffe_raises():
    """A report has the place of a bottom that is no top, and its text has not, as pycaffe's."""
    with pytest.raises(TypeError, match=r"^ReLU input 1 is not a Top \(type is <class 'int'>\)$") as refused:
        L.ReLU(L.Input(), 3)
    assert re.search(r"test_net_spec.py:\d+: ReLU input 1 .*; give it a top", refused.value.lines[0])
    with pytest.raises(AttributeError, match=r"L.ReLU has no field 'slop'"):
        L.ReLU(slop=1)
    with pytest.raises(AttributeError, match="has no field 'typ'"):
        L.Convolution(weight_filler={"typ": "xavier"})
    with pytest.raises(TypeError, match=r"num_output='many'; it takes a whole number"):
        L.Convolution(convolution_param={"num_output": "many"})


def test_lazy_layers_are_checked_when_the_net_is_written():
    lazy = Layers(lazy=True)
    n = NetSpec()
    n.data = lazy.Input(shape={"dim": [1, 2]})
    n.own = lazy.LayerOfMine(n.data, param={"lr_mult": 2}, loss_weight=3)
    assert [(layer.type, list(layer.loss_weight)) for layer in n.to_proto().layer] == [
        ("Input", []),
        ("LayerOfMine", [3]),
    ]
    n.relu = lazy.ReLU(n.own, slop=1)
    with pytest.raises(AttributeError, match=r"test_net_spec.py:\d+: L.ReLU has no field 'slop'"):
        n.to_proto()
    n.update("relu", {"negative_slop": 1})
    assert n.relu.fn.params["negative_slop"] == 1


def test_a_layer_names_its_tops_itself():
    n = NetSpec()
    when = {phase: {"include": {"phase": phase}, "name": "data", "top": ["x", "y"]} for phase in (0, 1)}
    n.train, _ = L.DummyData(ntop=2, **when[0])
    n.test, label = L.DummyData(ntop=2, **when[1])
    n.ip = L.InnerProduct(n.test, num_output=1)
    n.loss = L.EuclideanLoss(n.ip, label)
    n.hidden = L.DummyData(top=["a", "b"], ntop=0)
    layers = [(layer.name, list(layer.bottom), list(layer.top)) for layer in n.to_proto().layer]
    assert layers[:2] == [("data", [], ["x", "y"])] * 2
    assert layers[2:4] == [("ip", ["x"], ["ip"]), ("loss", ["ip", "y"], ["loss"])]
    assert layers[4][2] == ["a", "b"]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"ntop": 2, "top": ["a"]}, r"L.ReLU names 1 tops, and there are 2 \(ntop\); make them agree"),
        ({"top": ["a", "b"]}, r"L.ReLU names 2 tops, and there are 1 \(ntop\)"),
        ({"top": "a", "in_place": True}, r"names 1 tops, and the tops are the bottoms \(in_place\)"),
    ],
)
def test_names_of_tops_that_do_not_fit_are_refused_where_they_are_written(fields, says):
    with pytest.raises(InputError, match=says) as refused:
        L.ReLU(L.Input(), **fields)
    assert refused.value.path == __file__


def test_an_error_in_the_net_names_the_line_of_the_script():
    n = lenet()
    n.far = L.Convolution(n.pool1, num_output=3, kernel_size=50)
    with pytest.raises(InputError) as refused:
        Net(net_file(n), 0)
    source = Path(__file__).read_text().splitlines()
    assert "n.far = " in source[refused.value.line - 1] and refused.value.layer == "far"


def test_the_public_names_are_these():
    assert layermem.NetSpec is NetSpec and layermem.L is L and layermem.P is P and layermem.to_proto is to_proto
