"""Which layers become one op: those between which no other op reads, where the device has a kernel."""

import pytest

from layermem.backends.cpu import CpuDevice
from layermem.graph.fusion import fuse
from layermem.graph.net import Net
from layermem.graph.nodes import op_nodes
from layermem.graph.train import train_graph
from layermem.planning.recomputation import matches
from layermem.proto.read import read_net
from tests.compiling import compile

HEAD = 'layer { name: "data" type: "Input" top: "x" input_param { shape { dim: 2 dim: 4 dim: 5 dim: 5 } } }\n'
CONV = (
    'layer { name: "c" type: "Convolution" bottom: "x" top: "y" convolution_param { num_output: 4 kernel_size: 1 } }\n'
)
RELU = 'layer { name: "r" type: "ReLU" bottom: "y" top: "z" }\n'
ALL = CpuDevice.fusions
SUMS = {f"{kind}+residual{relu}" for kind in ("Conv", "InnerProduct", "BatchNormScale") for relu in ("", "+relu")}


def types(tmp_path, text: str, fusions=ALL, outputs=()) -> list[str]:
    path = tmp_path / "net.prototxt"
    path.write_text(HEAD + text)
    return [node.emitter.type for node in fuse(op_nodes(Net(read_net(path), 0)), fusions, outputs)[1:]]


@pytest.mark.parametrize("relu", [RELU, RELU.replace('"z"', '"y"')])
def test_a_convolution_and_the_relu_that_alone_reads_it_become_one_op(relu, tmp_path):
    assert types(tmp_path, CONV + relu) == ["ConvolutionReLU"]


def test_an_inner_product_and_a_sum_take_their_relu_along(tmp_path):
    product = CONV.replace("Convolution", "InnerProduct").replace("convolution_param", "inner_product_param")
    assert types(tmp_path, product.replace("kernel_size: 1", "") + RELU) == ["InnerProductReLU"]
    assert types(tmp_path, 'layer { name: "s" type: "Eltwise" bottom: "x" bottom: "x" top: "y" }\n' + RELU) == [
        "EltwiseReLU"
    ]


def test_the_longest_chain_of_a_batch_norm_wins(tmp_path):
    norm = """
        layer { name: "n" type: "BatchNorm" bottom: "y" top: "n" }
        layer { name: "s" type: "Scale" bottom: "n" top: "s" scale_param { bias_term: true } }
        layer { name: "r" type: "ReLU" bottom: "s" top: "z" }"""
    assert types(tmp_path, CONV + norm) == ["Convolution", "BatchNormScale"]


def test_a_batch_norm_with_scale_and_bias_of_its_own_fuses_like_the_two(tmp_path):
    norm = """
        layer { name: "n" type: "BatchNorm" bottom: "y" top: "n" batch_norm_param { scale_bias: true } }
        layer { name: "r" type: "ReLU" bottom: "n" top: "z" }"""
    assert types(tmp_path, CONV + norm) == ["Convolution", "BatchNormScale"]
    total = norm + 'layer { name: "e" type: "Eltwise" bottom: "n" bottom: "x" top: "e" }'
    assert types(tmp_path, CONV + total.replace('"z"', '"n"')) == ["Convolution", "BatchNormScale", "Eltwise"]
    total = norm.split('\n        layer { name: "r')[0] + total.split('"z" }')[1] + RELU.replace('"y"', '"e"')
    assert types(tmp_path, CONV + total) == ["Convolution", "BatchNormScaleSumReLU"]


@pytest.mark.parametrize(
    "text",
    [
        CONV + RELU + 'layer { name: "other" type: "TanH" bottom: "y" top: "t" }',
        CONV + RELU.replace(" }\n", " relu_param { negative_slope: 0.1 } }\n"),
        CONV + RELU.replace(" }\n", " propagate_down: false }\n"),
        CONV.replace("convolution_param", "loss_weight: 1 convolution_param") + RELU,
        'layer { name: "m" type: "Eltwise" bottom: "x" bottom: "x" top: "y" eltwise_param { operation: MAX } }' + RELU,
    ],
    ids=["another reader", "a slope", "no gradient passes", "a loss", "no sum"],
)
def test_layers_stay_apart_where_the_blob_between_them_matters(text, tmp_path):
    assert "ReLU" in types(tmp_path, text)


def test_a_blob_that_is_wanted_as_an_output_is_not_fused_away(tmp_path):
    assert types(tmp_path, CONV + RELU, outputs=("y",)) == ["Convolution", "ReLU"]


def test_a_device_gets_only_what_it_has_kernels_for(tmp_path):
    assert types(tmp_path, CONV + RELU, fusions={"Eltwise+relu"}) == ["Convolution", "ReLU"]
    assert types(tmp_path, CONV + RELU, fusions=()) == ["Convolution", "ReLU"]


# -- a sum with another blob -------------------------------------------------------------------------------------------

NORM = """
    layer { name: "n%(n)s" type: "BatchNorm" bottom: "%(x)s" top: "n%(n)s" }
    layer { name: "s%(n)s" type: "Scale" bottom: "n%(n)s" top: "y%(n)s" scale_param { bias_term: true } }
"""
LEFT, RIGHT = NORM % {"n": "l", "x": "x"}, NORM % {"n": "r", "x": "x"}
TOTAL = 'layer { name: "sum" type: "Eltwise" bottom: "%s" bottom: "%s" top: "t" }\n'
END = 'layer { name: "r" type: "ReLU" bottom: "t" top: "z" }\n'


@pytest.mark.parametrize("order", [("x", "y"), ("y", "x")])
def test_a_product_takes_the_sum_with_another_blob_along_and_its_relu(order, tmp_path):
    assert types(tmp_path, CONV + TOTAL % order + END, ALL | SUMS) == ["ConvolutionSumReLU"]
    assert types(tmp_path, CONV + TOTAL % order, ALL | SUMS) == ["ConvolutionSum"]
    assert types(tmp_path, CONV + TOTAL % order + END) == ["Convolution", "EltwiseReLU"]


def test_of_two_normalized_blobs_the_later_one_takes_the_sum_along(tmp_path):
    path = tmp_path / "net.prototxt"
    path.write_text(HEAD + LEFT + RIGHT + TOTAL % ("yr", "yl") + END)
    nodes = fuse(op_nodes(Net(read_net(path), 0)), ALL | SUMS)[1:]
    assert [(node.emitter.name, node.bottoms) for node in nodes] == [("nl+sl", ("x",)), ("nr+sr+sum+r", ("x", "yl"))]
    assert nodes[1].emitter.bottom_names == ("x", "yl")


@pytest.mark.parametrize(
    "text",
    [
        LEFT + TOTAL.replace('top: "t"', 'top: "t" eltwise_param { coeff: 1 coeff: -1 }') % ("x", "yl"),
        LEFT + TOTAL.replace('top: "t"', 'top: "t" eltwise_param { operation: MAX }') % ("x", "yl"),
        LEFT + TOTAL.replace('bottom: "%s" top', 'bottom: "%s" bottom: "x" top') % ("x", "yl"),
        LEFT + TOTAL % ("yl", "yl"),
        LEFT + TOTAL % ("x", "yl") + 'layer { name: "other" type: "TanH" bottom: "yl" top: "o" }',
        LEFT + 'layer { name: "u" type: "TanH" bottom: "x" top: "u" }' + TOTAL % ("yl", "u"),
    ],
    ids=["a coefficient", "no sum", "three terms", "twice the same", "another reader", "the other is made later"],
)
def test_a_sum_stays_a_layer_of_its_own_where_it_is_more_than_one_more_blob(text, tmp_path):
    assert "Eltwise" in types(tmp_path, text, ALL | SUMS)


def test_a_layer_that_is_called_like_a_fused_pair_keeps_its_name_and_the_pair_gets_a_number(tmp_path):
    net = HEAD + CONV.replace('"c"', '"a"') + RELU.replace('"r"', '"b"').replace('"z"', '"y"')
    net += CONV.replace('"c"', '"a+b"').replace('bottom: "x"', 'bottom: "y"').replace('top: "y"', 'top: "z"')
    net += 'layer { name: "loss" type: "Reduction" bottom: "z" top: "l" loss_weight: 1 }\n'
    path = tmp_path / "net.prototxt"
    path.write_text(net)
    graph = train_graph(Net(read_net(path), 0), CpuDevice())
    assert len(graph.by_name) == len(graph.ops)
    ops = {layer: op.layer_name for op in graph.ops for layer in op.layers}
    assert ops == {"data": "data", "a": "a+b(2)", "b": "a+b(2)", "a+b": "a+b", "loss": "loss"}
    assert compile([graph], strategy="recompute").schedules
    hit = [op.name for op in graph.ops if matches(op, ["b"])]
    assert hit and all(name.startswith("a+b(2).") for name in hit)
