"""The layer types of forks: each has a row in docs/forks.md, and kernels on every device."""

import re
from pathlib import Path

import pytest

from layermem.backends.cpu.base import cpu_kernels
from layermem.backends.cuda import cuda_kernels
from layermem.backends.reference.base import REGISTRY
from layermem.layers import LAYERS
from layermem.ops import Unpool
from layermem.proto.schema import LayerParameter
from tests.cases import CASES
from tests.layers.harness import wants_of

PAGE = Path(__file__).parents[2] / "docs" / "forks.md"
TYPES = (
    "Axpy", "BN", "ConvolutionDepthwise", "DepthwiseConvolution",
    "DetectionEvaluate", "DetectionOutput", "Interp", "MultiBoxLoss", "Normalize", "Permute",
    "PriorBox", "PSROIPooling", "RegionLoss", "ReLU6", "Reorg", "ROIPooling", "ShuffleChannel", "SmoothL1Loss",
    "Upsample", "YoloDetectionOutput", "Yolov3", "Yolov3DetectionOutput",
)  # fmt: skip
NOT_ON_CUDA = {  # refused by name: test_detection.py, test_yolo.py
    "DetectionEvaluate",
    "DetectionOutput",
    "MultiBoxLoss",
    "RegionLoss",
    "YoloDetectionOutput",
    "Yolov3",
    "Yolov3DetectionOutput",
}
ROWS = {row[0].strip(): row for row in (line.strip("|").split("|") for line in PAGE.read_text().splitlines())}


@pytest.mark.parametrize("kind", TYPES)
def test_a_type_of_a_fork_has_a_row_that_names_the_fork_and_the_number_of_its_block(kind):
    _, fork, block, _ = ROWS[kind]
    assert kind in LAYERS and fork.strip()
    for name, number in re.findall(r"`(\w+)` = (\d+)", block):
        assert LayerParameter.DESCRIPTOR.fields_by_name[name].number == int(number)


@pytest.mark.parametrize("kind", TYPES)
def test_a_type_of_a_fork_has_kernels_on_every_device_that_does_not_refuse_it(kind):
    runnable = [case for case in CASES.values() if {"small", "medium"} & set(case.sizes)]
    layers = [case.layer() for case in runnable if f'"{kind}"' in case.text]
    assert layers
    devices = (REGISTRY, cpu_kernels) if kind in NOT_ON_CUDA else (REGISTRY, cpu_kernels, cuda_kernels)
    for layer in layers:
        for step in filter(None, (layer.forward(), layer.recompute(), *layer.backward(wants_of(layer)))):
            record = step.record or layer.record
            here = devices[:2] if isinstance(record, Unpool) else devices
            assert all(each.implements(record, step.step) for each in here)
