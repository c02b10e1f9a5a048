"""The name that was probably meant by a mistyped one."""

import pytest

from layermem.proto.schema import LayerParameter, SolverParameter
from layermem.utils.similar import did_you_mean, nearest

LAYER, SOLVER = LayerParameter.DESCRIPTOR.fields_by_name, SolverParameter.DESCRIPTOR.fields_by_name


@pytest.mark.parametrize(
    ("wrote", "meant"),
    [
        ("convolutional_param", "convolution_param"),
        ("Pooling_param", "pooling_param"),
        ("botom", "bottom"),
        ("inner_product_params", "inner_product_param"),
        ("relu_parma", "relu_param"),
        ("tpo", "top"),
        ("tops", "top"),
    ],
)
def test_a_name_of_few_edits_is_found(wrote, meant):
    assert nearest(wrote, LAYER) == meant and did_you_mean(wrote, LAYER) == f"did you mean '{meant}'?"


@pytest.mark.parametrize(
    ("wrote", "known"),
    [
        ("quantization_param", LAYER),
        ("correlation_layer_param", LAYER),
        ("lstm_param", LAYER),
        ("local_gw_ratio", SOLVER),
        ("gpu_index", SOLVER),
        ("cache", ["scale", "source"]),
        ("new_dim", ["new_width"]),
        ("RPN", ["RNN", "ReLU"]),
        ("GELU", ["ELU", "ReLU6"]),
        ("Min", ["MVN"]),
        ("Rescale", ["Reshape"]),
        ("AMSoftmax", ["Softmax"]),
        ("x" * 10_000, LAYER),
        ("", LAYER),
    ],
)
def test_a_name_like_no_other_is_not_answered_with_another(wrote, known):
    assert nearest(wrote, known) is None and did_you_mean(wrote, known) == ""


def test_the_nearer_of_two_names_is_taken():
    assert nearest("stride", ["strides", "stride_h", "stride_w"]) == "strides"
