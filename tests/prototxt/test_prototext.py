"""The writer of nets and solvers."""

import pytest
from google.protobuf import text_format

from layermem.errors import InputError
from layermem.nets.catalog import FAMILIES, NETS, net_files
from layermem.nets.prototext import WIDTH, NetText, Word, dummy_solver, field, filler, solver
from layermem.nets.resnet import block_name, split
from layermem.proto.read import read_net_text
from layermem.proto.schema import SolverParameter


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "f: 3"),
        (0.5, "f: 0.5"),
        (True, "f: true"),
        ("a", 'f: "a"'),
        (Word("MAX"), "f: MAX"),
        ({}, "f { }"),
        ({"a": 1, "b": "x"}, 'f { a: 1 b: "x" }'),
        (filler("msra"), 'f { type: "msra" }'),
    ],
)
def test_a_field_is_written_by_the_type_of_its_value(value, text):
    assert field("f", value) == [text]


def test_a_list_repeats_its_field():
    assert field("dim", [1, 2]) == ["dim: 1", "dim: 2"]


def test_a_net_is_read_as_it_was_written():
    net = NetText("tiny", notes=["a note"])
    net.dummy("TRAIN", [2, 3, 8, 8], [2], 10, {})
    x = net.relu("relu1", net.conv("conv1", "data", num_output=4, kernel_size=3, weight_filler=filler("msra")))
    net.loss("loss", net.fc("ip", x, num_output=10, weight_filler=filler("xavier", variance_norm=1)))
    assert str(net).startswith('# a note\nname: "tiny"\n')
    message = read_net_text(str(net).replace("variance_norm: 1", "variance_norm: FAN_OUT")).message
    assert [layer.type for layer in message.layer] == [
        "DummyData",
        "Convolution",
        "ReLU",
        "InnerProduct",
        "SoftmaxWithLoss",
    ]
    assert message.layer[1].convolution_param.kernel_size == [3] and message.layer[2].top == ["conv1"]


def test_a_layer_too_long_for_a_line_takes_one_per_message():
    net = NetText("wide", notes=[])
    fillers = {"weight_filler": filler("gaussian", std=0.01), "bias_filler": filler("constant", value=0.1)}
    net.conv("conv1", "data", num_output=4, kernel_size=3, pad=1, stride=2, dilation=2, group=2, **fillers)
    lines = str(net).splitlines()
    assert lines[1] == "layer {" and lines[-1] == "}" and all(len(line) <= WIDTH for line in lines)


def test_solvers_are_read_as_they_were_written():
    text = solver(["a note"], net="n.prototxt", base_lr=0.1, stepvalue=[1, 2], test_initialization=False)
    message = text_format.Parse(text, SolverParameter())
    assert list(message.stepvalue) == [1, 2] and message.HasField("test_initialization")
    assert text_format.Parse(dummy_solver("out/x"), SolverParameter()).train_state.stage == ["dummy"]


def test_blocks_of_a_residual_net_make_its_depth():
    assert split(50) == (3, 4, 6, 3)
    for depth in (38, 41, 302, 1505, 2504):
        assert 3 * sum(split(depth)) + 2 == depth
    assert [block_name(2, index, 3, 50) for index in range(3)] == ["2a", "2b", "2c"]
    assert [block_name(3, index, 4, 101) for index in range(3)] == ["3a", "3b1", "3b2"]


def test_the_catalog_has_all_nets_and_refuses_others():
    assert set(NETS) | set(FAMILIES) == {
        "alexnet", "autoencoder", "caffenet", "faster_rcnn", "googlenet", "inception_v3", "lstm1000", "lstm_lm",
        "pspnet", "segnet", "siamese", "unet", "unet256", "unetpp256", "wrn28_10",
        "densenet", "mobilenet", "resnet", "resnext", "squeezenet", "ssd", "vgg",
    }  # fmt: skip
    assert set(net_files("vgg16").texts()) == {"train_val.prototxt", "solver.prototxt", "solver_dummy.prototxt"}
    for name in ("vgg", "vgg17", "densenet1", "resnet51", "lenet", "Vgg16"):
        with pytest.raises(InputError, match=r"unknown net|is not defined"):
            net_files(name)
