"""The 61 types of BVLC Caffe: layermem has them on every device, or says what to write instead."""

import pytest

from layermem.backends.cpu.base import cpu_kernels
from layermem.backends.cuda import cuda_kernels
from layermem.backends.reference.base import REGISTRY
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.layers import LAYERS
from layermem.layers.base import MISSING
from layermem.layers.composite import COMPOSITES
from layermem.layers.data import FEEDS
from layermem.proto.read import read_net_text
from tests.cases import CASES
from tests.layers.harness import wants_of

TYPES = (
    "AbsVal", "Accuracy", "ArgMax", "BatchNorm", "BatchReindex", "Bias", "BNLL", "Clip", "Concat", "ContrastiveLoss",
    "Convolution", "Crop", "Data", "Deconvolution", "Dropout", "DummyData", "ELU", "Eltwise", "Embed",
    "EuclideanLoss", "Exp", "Filter", "Flatten", "HDF5Data", "HDF5Output", "HingeLoss", "Im2col", "ImageData",
    "InfogainLoss", "InnerProduct", "Input", "Log", "LRN", "LSTM", "LSTMUnit", "MemoryData",
    "MultinomialLogisticLoss", "MVN", "Parameter", "Pooling", "Power", "PReLU", "Python", "Reduction", "ReLU",
    "Reshape", "RNN", "Scale", "Sigmoid", "SigmoidCrossEntropyLoss", "Silence", "Slice", "Softmax", "SoftmaxWithLoss",
    "Split", "SPP", "Swish", "TanH", "Threshold", "Tile", "WindowData",
)  # fmt: skip
PLANNED_ONLY = {"Filter"}  # its refusal to run: tests/graph
USERS_CODE = {"Python"}  # tests/layers/test_python.py
ON_DEVICES = sorted({*TYPES} - {*MISSING} - FEEDS - {*COMPOSITES} - PLANNED_ONLY - USERS_CODE)


def test_every_type_of_caffe_is_there_or_known_to_be_missing():
    assert len(set(TYPES)) == 61
    there = {*LAYERS, *FEEDS, *COMPOSITES}
    assert {*TYPES} - there == {*MISSING} and not {*MISSING} & there


@pytest.mark.parametrize("kind", ON_DEVICES)
def test_a_type_has_a_case_and_kernels_on_every_device(kind):
    layers = [
        case.layer(size)
        for case in CASES.values()
        if f'type: "{kind}"' in case.text
        for size in ("small", "medium")
        if size in case.sizes
    ]
    assert layers
    for layer in layers:
        for step in filter(None, (layer.forward(), layer.recompute(), *layer.backward(wants_of(layer)))):
            record = step.record or layer.record
            assert all(each.implements(record, step.step) for each in (REGISTRY, cpu_kernels, cuda_kernels)), step.step


@pytest.mark.parametrize("kind", MISSING)
def test_a_missing_type_is_refused_with_what_to_write_instead(kind):
    text = f'''
        layer {{ name: "d" type: "Input" top: "d" input_param {{ shape {{ dim: 3 dim: 2 }} }} }}
        layer {{ name: "x" type: "{kind}" bottom: "d" top: "x" }}
    '''
    with pytest.raises(InputError) as caught:
        Net(read_net_text(text), 0)
    assert f"layer 'x' has type '{kind}', which layermem does not have; " in str(caught.value)
    assert str(caught.value).endswith(MISSING[kind])
