"""Remedies for unknown fields and wrong values."""

import pytest

from layermem.proto.remedy import expected_value, field_at, unknown_field
from layermem.proto.schema import NetParameter, SolverParameter

NET = NetParameter.DESCRIPTOR


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("name", "a UTF-8 string in quotes"),
        ("force_backward", "true or false"),
        ("layer", "a block { ... }"),
        ("layer.loss_weight", "a number"),
        ("layer.phase", "one of TRAIN, TEST"),
        ("layer.pooling_param.kernel_size", "a whole number from 0 to 4294967295"),
        ("layer.concat_param.axis", "a whole number from -2147483648 to 2147483647"),
    ],
)
def test_the_values_of_a_field_are_described(path, expected):
    assert expected_value(field_at(NET, path.split("."))) == expected


def test_a_path_that_leads_nowhere_has_no_field():
    assert field_at(NET, ["layer", "magic"]) is None and field_at(NET, ["name", "more"]) is None


@pytest.mark.parametrize(
    ("owner", "name", "root", "remedy"),
    [
        ("LayerParameter", "covolution_param", NetParameter, "did you mean 'convolution_param'?"),
        ("LayerParameter", "kernel_size", NetParameter, "it belongs inside 'convolution_param' or 'pooling_param'"),
        (
            "LayerParameter",
            "video_data_param",
            NetParameter,
            "from the C3D, yjxiong/caffe and SSD forks of Caffe, which is not supported",
        ),
        ("LayerParameter", "force_backward", NetParameter, "is a '}' missing before it?"),
        ("NetParameter", "base_lr", NetParameter, "give this file to --solver"),
        ("SolverParameter", "layer", SolverParameter, "give this file to --net, or name it in the solver's 'net'"),
        ("V1LayerParameter", "seg_accuracy_param", NetParameter, "from the PSPNet fork of Caffe"),
        ("BatchNormParameter", "filler", NetParameter, "write a Scale layer with bias_term: true behind"),
        ("TransformationParameter", "noise_param", NetParameter, "apply it to the images before they are stored"),
        ("LayerParameter", "eval_detection_param", NetParameter, "from Intel Caffe"),
        ("LayerParameter", "lstm_param", NetParameter, "from the caffe-lstm fork of Caffe"),
        ("SolverParameter", "stagelr", SolverParameter, "from Intel Caffe, and it is not obeyed here; write"),
        ("LayerParameter", "eval_type", NetParameter, "its fields are accuracy_param"),
        ("ImageDataParameter", "cache", NetParameter, "its fields are batch_size"),
        ("TransformationParameter", "new_dim", NetParameter, "its fields are augment_param, crop_size"),
        ("SoftmaxParameter", "zzz", NetParameter, "its fields are axis, engine"),
    ],
)
def test_an_unknown_field_has_a_remedy(owner, name, root, remedy):
    sentence = unknown_field(owner, name, 3, root())
    assert (
        sentence.startswith(f"'{name}' (column 3) is not a field of {owner.removeprefix('V1')}") and remedy in sentence
    )
