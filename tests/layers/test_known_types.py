"""The types that a net may have, and their families."""

import pytest

from layermem.layers.known_types import family_of, known_types


def test_known_types_are_all_layer_types_that_a_net_may_name():
    types = known_types()
    assert {"Convolution", "Data", "Input", "Python", "SPP", "LSTM"} <= set(types) and types == sorted(types)
    assert not {"InfogainMatrix", "DetectionSizes", "AsImages", "StateRead", "Exposed"} & set(types)


@pytest.mark.parametrize(
    ("family", "types"),
    [
        ("convolution", "Convolution Deconvolution ConvolutionDepthwise DepthwiseConvolution Im2col"),
        ("pooling", "Pooling SPP ROIPooling PSROIPooling Upsample"),
        ("inner product", "InnerProduct Embed"),
        ("normalization", "BatchNorm Scale Bias BN LRN MVN Normalize"),
        ("loss", "SoftmaxWithLoss Accuracy Yolov3 DetectionEvaluate CenterLoss"),  # the last is of another fork
        ("input", "Data Input AnnotatedData"),
        ("other", "ReLU LSTM Mish"),
    ],
)
def test_a_type_has_a_family(family, types):
    assert {family_of(name) for name in types.split()} == {family}
