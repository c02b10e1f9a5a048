"""The bench of ops times every op of each kind of layer, and every shape of a net's convolutions."""

import pytest

from layermem.backends.cpu import CpuDevice
from layermem.layers import LAYERS
from layermem.layers.base import PARTS
from tests.cases import select
from tools.bench_ops_cpu import WITHOUT_GRADIENT, Timed, convolutions_of, layers_of_cases, net_of, works_of


@pytest.mark.parametrize(
    "kind, shapes, ops",
    [
        ("ReLU", [(2, 3, 4, 4)], 2),
        ("EuclideanLoss", [(2, 3), (2, 3)], 2),
        ("SoftmaxWithLoss", [(2, 3), (2,)], 2),
        ("Accuracy", [(2, 3), (2,)], 1),
    ],
)
def test_the_ops_of_a_layer_are_timed_with_the_bytes_of_their_buffers(kind, shapes, ops):
    labels = 1 if len(shapes) > 1 and len(shapes[1]) == 1 else None
    works, peers = works_of(Timed(kind, f'type: "{kind}"', shapes, labels), CpuDevice(), 1)
    assert [*works] == ["forward", "backward"][:ops] and peers == {}
    assert all(seconds > 0 and nbytes >= 4 * 6 for seconds, _, nbytes in works.values())


def test_the_convolutions_of_a_net_are_timed_by_their_gradients():
    first, second = convolutions_of("mnist:2")
    assert (first.shapes, first.has_data_gradient) == ([(2, 1, 28, 28)], False)
    assert {*works_of(first, CpuDevice(), 1)[0]} == {"forward", "backward", "wgrad"}
    works, _ = works_of(second, CpuDevice(), 1)
    assert {*works} == {"forward", "backward", "wgrad", "dgrad"}
    assert works["backward"].flops == works["wgrad"].flops + works["dgrad"].flops > 0
    assert next(convolutions_of("c3d:1")).shapes[0][2:] == (16, 112, 112)


def test_every_case_is_a_net_with_a_gradient_where_there_is_one():
    for layer in layers_of_cases([""]):
        net = net_of(layer)
        kind = net.nodes[-2].layer.type if net.nodes[-1].layer.name == "sum" else net.nodes[-1].layer.type
        assert net.message.force_backward == (kind not in WITHOUT_GRADIENT)
    kinds = {case.text.split('"')[1] for case in select("timing")}
    bound_by_arithmetic = {
        "Convolution",
        "ConvolutionDepthwise",
        "Deconvolution",
        "DepthwiseConvolution",
        "InnerProduct",
    }
    names_only = {"Parameter", "Reshape", "Slice", "Split", "Silence", "Threshold"}
    small = {
        "DetectionEvaluate", "DetectionOutput", "Filter", "HDF5Output", "InfogainLoss", "MultiBoxLoss",
        "MultinomialLogisticLoss", "Python", "RegionLoss", "YoloDetectionOutput", "Yolov3",
        "Yolov3DetectionOutput",
    }  # on the host, of boxes, or of scores  # fmt: skip
    assert kinds == set(LAYERS) - bound_by_arithmetic - names_only - small - PARTS
