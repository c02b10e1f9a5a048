"""`layermem show`."""

import json

import pytest

LENET = "prototxt/mnist/train_val.prototxt"
SHARED = """
    layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
    layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" param { name: "w" } inner_product_param {
            num_output: 3 bias_term: false } }
    layer { name: "b" type: "InnerProduct" bottom: "a" top: "b" param { name: "w" } inner_product_param {
            num_output: 3 bias_term: false } }
    layer { name: "r" type: "ReLU" bottom: "b" top: "b" }
"""


def test_each_layer_is_a_row_and_the_last_row_is_their_sum(layermem):
    ended = layermem("show", "--net", LENET)
    lines = ended.out.splitlines()
    assert ended.code == 0 and len(lines) == 1 + 1 + 9 + 1 + 1
    assert lines[3].split() == [
        "conv1",
        "Convolution",
        "data",
        "conv1",
        "64x20x24x24",
        "520",
        "36.9",
        "M",
        "2.81",
        "MiB",
    ]
    assert lines[-2].split()[:3] == ["9", "layers", "431,080"]


def test_json_has_every_layer_with_shapes_and_counts(layermem):
    values = json.loads(layermem("show", "--net", LENET, "--json").out)
    assert values["parameters"] == 431080 and values["activation_bytes"] == 5169924
    conv = values["layers"][1]
    assert conv["name"] == "conv1" and conv["type"] == "Convolution"
    assert conv["bottoms"] == ["data"] and conv["tops"] == ["conv1"]
    assert conv["top_shapes"] == [[64, 20, 24, 24]]
    assert conv["parameter_shapes"] == [[20, 1, 5, 5], [20]] and conv["parameters"] == 520
    assert conv["flops"] == 2 * 64 * 20 * 24 * 24 * 25
    assert values["layers"][5]["parameter_shapes"] == [[500, 800], [500]]  # two axes, as Caffe's files have it


def test_an_in_place_layer_has_one_name_for_bottom_and_top_and_no_bytes_of_its_own(layermem):
    relu = json.loads(layermem("show", "--net", LENET, "--json").out)["layers"][6]
    assert relu["bottoms"] == relu["tops"] == ["ip1"] and relu["bytes"] == 0


def test_a_shared_parameter_counts_once_in_the_total(layermem, prototxt):
    values = json.loads(layermem("show", "--net", prototxt(SHARED), "--json").out)
    assert [layer["parameters"] for layer in values["layers"]] == [0, 9, 9, 0] and values["parameters"] == 9


def test_the_bytes_of_caffenet_are_those_that_caffe_printed(layermem):
    ended = layermem("show", "--net", "prototxt/caffenet/train_val.prototxt", "--phase", "TEST", "--json")
    assert json.loads(ended.out)["activation_bytes"] == 343607608  # a user's log of Caffe


def test_batch_and_input_change_the_shapes(layermem):
    for options in (["--batch", "4"], ["--input", "data=4,1,28,28"]):
        values = json.loads(layermem("show", "--net", LENET, "--json", *options).out)
        assert values["layers"][0]["top_shapes"] == [[4, 1, 28, 28], [4]]
        assert values["layers"][-2]["top_shapes"] == [[4, 10]]


def test_the_phase_chooses_the_layers(layermem):
    names = [
        [
            layer["name"]
            for layer in json.loads(layermem("show", "--net", LENET, "--phase", phase, "--json").out)["layers"]
        ]
        for phase in ("TRAIN", "TEST")
    ]
    assert "accuracy" not in names[0] and "accuracy" in names[1]


NO_FILES = """
    layer { name: "d" type: "Data" top: "data" top: "label" data_param { source: "nowhere" batch_size: 2 } }
    layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }
"""


def test_a_net_without_its_data_set_is_shown_if_its_shape_is_given(layermem, prototxt):
    path = prototxt(NO_FILES)
    ended = layermem("show", "--net", path)
    assert ended.code == 2 and "--input data=" in ended.sentence
    ended = layermem("show", "--net", path, "--input", "data=2,3,4,4", "--json")
    assert json.loads(ended.out)["layers"][1]["parameter_shapes"] == [[2, 48], [2]]


@pytest.mark.parametrize("text", ["data", "data=", "=1,2", "data=1,two", "data=1;2"])
def test_an_input_without_a_shape_is_refused(layermem, text):
    ended = layermem("show", "--net", LENET, "--input", text)
    assert ended.code == 2 and "write it as data=64,3,224,224" in ended.sentence


def test_an_input_that_the_net_does_not_have_is_refused(layermem):
    ended = layermem("show", "--net", LENET, "--input", "image=1,1,28,28")
    assert ended.code == 2 and "no blob 'image' to give a shape to (input blobs: data)" in ended.sentence


def test_all_nets_of_a_solver_are_shown(layermem):
    solver = ("--solver", "prototxt/digits/solver.prototxt")
    plain, fused = layermem("show", *solver), layermem("show", *solver, "--fused")
    for ended in (plain, fused):
        heads = [line for line in ended.out.splitlines() if line.startswith("LeNet")]
        assert [head.split()[2] for head in heads] == ["TRAIN", "TEST"]
    nets = json.loads(layermem("show", *solver, "--json").out)["nets"]
    assert [net["phase"] for net in nets] == ["TRAIN", "TEST"]
    assert "--phase needs --net" in layermem("show", *solver, "--phase", "TEST").sentence
