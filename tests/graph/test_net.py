"""Blobs and types as a net wires them."""

import re
import sys

import pytest

from layermem.backends.reference import ReferenceDevice
from layermem.errors import InputError
from layermem.graph.net import Net, NetOptions
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


def test_an_automatic_top_never_takes_the_name_of_a_blob():
    loss = LOSS.replace('"loss"', '"t"') % ""
    assert net(loss).nodes[-1].tops == ("t(automatic)",)


def test_other_layers_do_not_get_tops_that_they_do_not_name():
    with pytest.raises(InputError, match="layer 'a' has 0 tops; Accuracy takes"):
        net('layer { name: "a" type: "Accuracy" bottom: "y" bottom: "t" }')


@pytest.mark.parametrize(
    ("wrote", "meant"),
    [
        ("relu", "ReLU"),
        ("Convolutoin", "Convolution"),
        ("INNER_PRODUCT", "InnerProduct"),
        ("softmax_loss", "SoftmaxWithLoss"),
    ],
)
def test_a_type_that_is_nearly_right_is_answered_with_the_right_one(wrote, meant):
    with pytest.raises(InputError, match=f":5: layer 'a' has type '{wrote}', .*; did you mean '{meant}'\\?"):
        net(f'layer {{ name: "a" type: "{wrote}" bottom: "y" top: "z" }}')


@pytest.mark.parametrize(
    ("wrote", "fork"),
    [
        ("ROIMerging", "the MNC fork of Caffe"),
        ("ConvolutionRistretto", "the Ristretto fork of Caffe"),
        ("Pooling3D", "ND-convolution forks of Caffe"),
        ("ReLUMKL", "Intel Caffe"),
    ],
)
def test_a_type_of_a_fork_is_answered_with_the_fork_and_not_with_one_like_it(wrote, fork):
    with pytest.raises(InputError, match=f"has type '{wrote}', .* have: it is from {fork}; it has: AbsVal Acc"):
        net(f'layer {{ name: "a" type: "{wrote}" bottom: "y" top: "z" }}')


def test_the_shapes_that_are_advised_for_tops_are_those_that_their_readers_need():
    text = """layer { name: "d" type: "%s" top: "data" top: "rois" top: "info" %s }
        layer { name: "c" type: "Convolution" bottom: "data" top: "c"
          convolution_param { num_output: 1 kernel_size: 1 } }
        layer { name: "r" type: "ROIPooling" bottom: "c" bottom: "rois" top: "r" }
        layer { name: "s" type: "Silence" bottom: "info" }"""
    for kind, block in (("MyData", ""), ("Python", "python_param { module: 'm' layer: 'l' }")):
        with pytest.raises(InputError, match=r"--input data=N,C,H,W --input rois=R,5 --input info=[.]{3}(,|$)"):
            Net(read_net_text(text % (kind, block)), 0, NetOptions(inputs={}))


def test_an_input_option_is_advised_only_where_it_can_be_given():
    source = read_net_text('layer { name: "in" type: "Input" top: "x" }')
    unknown = read_net_text('layer { name: "in" type: "Magic" top: "x" }')
    for file, form in ((source, "N,C,H,W"), (unknown, "...")):
        with pytest.raises(InputError, match=re.escape(f"--input x={form}")):
            Net(file, 0, NetOptions(inputs={}))
        with pytest.raises(InputError) as caught:
            Net(file, 0)
        assert "--input" not in caught.value.what


def test_a_type_like_no_other_is_answered_with_all_there_are():
    with pytest.raises(InputError, match="has type 'Magic', which layermem does not have; it has: AbsVal Accuracy "):
        net('layer { name: "a" type: "Magic" bottom: "y" top: "z" }')
    with pytest.raises(
        InputError, match=r"it has: .*Data.* DummyData .*HDF5Data .*ImageData .*Input .*MemoryData "
    ) as caught:
        Net(read_net_text('layer { name: "a" type: "MagicData" top: "z" }'), 0, NetOptions(inputs={}))
    assert "give --input z=..., or use Input; it has:" in str(caught.value)


TANH = 'layer { name: "%s" type: "TanH" bottom: "%s" top: "%s" }'


@pytest.mark.parametrize(
    ("layers", "remedy"),
    [
        (TANH % ("a", "scoer", "z"), 'so far: x t y); add a layer with top: "scoer" above, such as one of type Input'),
        (TANH % ("a", "later", "z") + TANH % ("b", "y", "later"), "layer 'b' writes it further down: move that up"),
        (
            TANH.replace("top", "include { phase: TEST } top") % ("b", "y", "z") + TANH % ("a", "z", "w"),
            "layer 'b' writes it, but its include and exclude rules leave it out of this phase",
        ),
        (
            TANH.replace("top", "include { stage: 'deep' stage: 'wide' } top") % ("b", "y", "z")
            + TANH % ("a", "z", "w"),
            "layer 'b' writes it only with --stage deep --stage wide",
        ),
        (
            TANH.replace("top", "exclude { not_stage: 'deep' } top") % ("b", "y", "z") + TANH % ("a", "z", "w"),
            "layer 'b' writes it only with --stage deep",
        ),
        (
            TANH.replace("top", "include { phase: TEST stage: 'deep' } top") % ("b", "y", "z") + TANH % ("a", "z", "w"),
            "layer 'b' writes it, but its include and exclude rules leave it out of this phase",
        ),
    ],
)
def test_a_blob_that_no_layer_writes_is_answered_with_what_to_do(layers, remedy):
    with pytest.raises(InputError) as caught:
        net(layers)
    assert "layer 'a' reads blob '" in str(caught.value) and remedy in str(caught.value)


def test_a_misspelled_blob_is_answered_with_the_right_one():
    text = TOP.replace('"y"', '"score"') + TANH % ("a", "scoer", "z")
    with pytest.raises(InputError, match=r"so far: x t score\); did you mean 'score'\?"):
        Net(read_net_text(text), 0)


IP = 'layer { %s type: "InnerProduct" bottom: "%s" top: "%s" inner_product_param { num_output: 3 } }\n'


def test_a_second_layer_of_a_name_gets_a_number_behind_it():
    twice = net(IP % ('name: "ip"', "y", "z"), IP % ('name: "ip"', "z", "w"))
    assert [node.layer.name for node in twice.nodes] == ["in", "ip", "ip(2)", "ip(3)"]
    ops = [op.name for op in train_graph(twice, ReferenceDevice()).ops]
    assert {"ip.forward", "ip(2).forward", "ip(3).forward"} <= set(ops) and len(set(ops)) == len(ops)


def test_a_number_that_another_layer_has_in_its_name_is_left_to_it():
    taken = net(IP % ('name: "ip"', "y", "z"), IP % ('name: "ip(2)"', "z", "w"))
    assert [node.layer.name for node in taken.nodes] == ["in", "ip", "ip(3)", "ip(2)"]


def test_a_layer_without_a_name_is_called_by_its_type():
    bare = Net(read_net_text((TOP + IP % ("", "y", "z")).replace('name: "ip"', "").replace('name: "in"', "")), 0)
    assert [node.layer.name for node in bare.nodes] == ["DummyData", "InnerProduct", "InnerProduct(2)"]


def test_a_nameless_layer_has_one_name_in_both_phases():
    text = TOP + IP % ("include { phase: TRAIN }", "y", "z") + IP % ("", "y", "w")
    assert [Net(read_net_text(text), phase).nodes[-1].layer.name for phase in (0, 1)] == ["InnerProduct(2)"] * 2


def test_an_error_names_layers_of_one_name_by_line_and_number():
    with pytest.raises(InputError, match=r":6: layer 'ip\(3\)' reads blob 'nowhere'"):
        net(IP % ('name: "ip"', "y", "z"), IP % ('name: "ip"', "nowhere", "w"))


@pytest.mark.parametrize(
    ("wrote", "words"),
    [
        ("loss_weight: nan", "layer 'loss' has loss_weight nan; use a finite number"),
        ("loss_weight: -inf", "layer 'loss' has loss_weight -inf; use a finite number"),
    ],
)
def test_a_loss_weight_that_is_no_number_is_refused(wrote, words):
    with pytest.raises(InputError, match=words):
        net(LOSS % wrote)


@pytest.mark.parametrize("field", ["lr_mult", "decay_mult"])
def test_a_multiplier_that_is_no_number_is_refused(field):
    with pytest.raises(InputError, match=f":5: layer 'ip.2.' has {field} inf of parameter 1; use a finite number"):
        net(IP % (f'name: "ip" param {{ }} param {{ {field}: inf }}', "y", "z"))


STREAMS = """
    layer { name: "words" type: "DummyData" top: "x" top: "cont" top: "static" top: "scale" dummy_data_param {
        shape { dim: 4 dim: 2 dim: 3 } shape { dim: 4 dim: 2 } shape { dim: 2 dim: 5 } shape { dim: 7 } } }
    layer { name: "lstm" type: "LSTM" bottom: "x" bottom: "cont" bottom: "static" top: "lstm"
            recurrent_param { num_output: 4 } }
    layer { name: "other" type: "Silence" bottom: "scale" }
"""


def test_more_streams_of_a_recurrent_net_leave_its_steps_as_they_are():
    few = Net(read_net_text(STREAMS), 0)
    shapes = few.shapes_with_streams(6)
    assert shapes == {"x": (4, 6, 3), "cont": (4, 6), "static": (6, 5), "scale": (7,)}
    many = Net(read_net_text(STREAMS), 0, NetOptions(inputs=shapes))
    assert many.blobs["lstm"].shape == (4, 6, 4)
    assert [node.layer.name for node in many.nodes] == [node.layer.name for node in few.nodes]


def test_a_net_that_is_not_recurrent_has_no_streams():
    assert net(LOSS % "").shapes_with_streams(6) == {}


def lines_run(layers: int) -> int:
    """The lines of Python that run while a chain of `layers` layers and its training step are made."""
    chain = [f'layer {{ name: "r{i}" type: "ReLU" bottom: "x{i}" top: "x{i + 1}" }}' for i in range(layers)]
    message = read_net_text(
        'layer { name: "in" type: "Input" top: "x0" input_param { shape { dim: 1 dim: 2 } } }\n'
        + "\n".join(chain)
        + f'\nlayer {{ name: "l" type: "EuclideanLoss" bottom: "x{layers}" bottom: "x0" top: "l" }}'
    )
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += event == "line"
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        train_graph(Net(message, 0, NetOptions(inputs={})), ReferenceDevice(), force_backward=True)
    finally:
        sys.settrace(previous)
    return count


def test_twice_the_layers_take_twice_the_work():
    lines_run(2)  # imports
    counts = [lines_run(layers) for layers in (40, 80, 160)]
    assert counts[2] - counts[1] < 2.1 * (counts[1] - counts[0])
