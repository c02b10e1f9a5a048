"""The 61 types of BVLC Caffe: layermem has them, on every device; and no code outside layers/ has a table of types."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from layermem.backends.cpu.base import cpu_kernels
from layermem.backends.cuda import cuda_kernels
from layermem.backends.reference.base import REGISTRY
from layermem.layers import LAYERS
from layermem.layers.composite import COMPOSITES
from layermem.layers.data import FEEDS
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
ON_DEVICES = sorted({*TYPES} & {*LAYERS} - PLANNED_ONLY - USERS_CODE)


def test_every_type_of_caffe_is_there():
    assert len(set(TYPES)) == 61 and {*TYPES} <= {*LAYERS, *FEEDS, *COMPOSITES}


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


PACKAGE = Path(__file__).resolve().parents[2] / "layermem"
OTHER_LANGUAGES = ("layers", "proto", "integrations")  # the types themselves, and formats in which they have names


def tables_of_types(source: str) -> Iterator[list[str]]:
    """The layer types in each tuple, list, set or dict of a module that names several."""
    types = {*LAYERS, *FEEDS, *COMPOSITES}
    for node in ast.walk(ast.parse(source)):
        members = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", ())
        named = [each.value for each in members if isinstance(each, ast.Constant) and each.value in types]
        if len(named) > 1:
            yield named


def test_what_code_needs_of_a_type_is_a_trait_of_its_class_and_in_no_table_of_names():
    tables = {
        path.relative_to(PACKAGE).as_posix(): named
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] not in OTHER_LANGUAGES
        for named in tables_of_types(path.read_text())
    }
    assert not tables


@pytest.mark.parametrize(
    "table", ['("ReLU", "SPP")', '{"Data": 1, "Input": 2}', 'x in ["LSTM", "LRN"]', '{"Exp", "Log"}']
)
def test_a_table_of_types_is_found(table):
    assert [*tables_of_types(table)]
