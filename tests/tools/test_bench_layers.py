"""The bench of layers times every op of each kind."""

import pytest

from layermem.backends.cpu import CpuDevice
from layermem.layers import LAYERS
from layermem.layers.base import PARTS
from tests.cases import select
from tests.op_case import OpCase
from tools.bench_layers_cpu import WITHOUT_GRADIENT, net_of, ops_of


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
    case = OpCase(kind, f'type: "{kind}"', {"timing": shapes}, labels=labels)
    found = list(ops_of(case, CpuDevice(), 1))
    assert [step for step, _, _ in found] == ["forward", "backward"][:ops]
    assert all(seconds > 0 and nbytes >= 4 * 6 for _, seconds, nbytes in found)


def test_every_case_is_a_net_with_a_gradient_where_there_is_one():
    for case in select("timing"):
        net = net_of(case)
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
