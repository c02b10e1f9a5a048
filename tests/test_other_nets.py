"""Faults that nets of other people's repositories brought to light: each row is a small net with one of them.

A row names the fault and what becomes of it: `shapes`, of the blobs of the net that is built; or `words`, in the error
or the note.  The rest is elsewhere: hints of shapes for Python layers in layers/test_python.py, losses that are no
number in solver/test_training.py, the workspace of an Embed in layers/test_gather.py, bottoms of a DetectionOutput in
layers/test_detection.py, nets inside of solvers in proto/test_unread.py.
"""

from dataclasses import dataclass, field

import pytest

from layermem.data.probing import probe
from layermem.errors import InputError
from layermem.graph.net import Net, NetOptions
from layermem.graph.warnings import net_warnings
from layermem.proto.read import read_net_text, read_solver_text
from layermem.proto.solver_nets import test_nets as nets_of_tests

RELU = 'layer { name: "r" type: "ReLU" bottom: "data" top: "y" }'
X = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: %d dim: 8 dim: 8 } } }\n'
SHAPES = {"data": (2, 3, 8, 8), "label": (2,)}
SIZES = "data_param { source: 'gone' batch_size: 2 } transform_param { crop_size: 8 force_color: true %s }"


def source(kind, fields=""):
    return f'layer {{ name: "d" type: "{kind}" top: "data" top: "label" {fields} }}\n{RELU}'


def layer(kind, fields="", bottom="x", channels=3, top="y"):
    bottoms = " ".join(f'bottom: "{name}"' for name in bottom.split())
    return X % channels + f'layer {{ name: "l" type: "{kind}" {bottoms} top: "{top}" {fields} }}'


@dataclass(frozen=True)
class Row:
    fault: str
    text: str
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    words: str = ""
    inputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    phase: int = 0


Y = {"y": (2, 3, 8, 8)}
ROWS = [
    Row("a block of an unknown source", source("MyData", "my_data_param { source: 'x' }"), Y, inputs=SHAPES),
    Row("a field that augments, shapes given", source("Data", "transform_param { noise_param { } }"), Y, inputs=SHAPES),
    Row("a field that augments, shapes stated", source("Data", SIZES % "noise_param { }"), Y, "noise_param"),
    Row("a field of a fork that decides the shape", source("Data", SIZES % "upper_size: 9"), {}, "the yjxiong/caffe"),
    Row("nested fields of a fork", source("Data", SIZES % "noise_param { saltpepper_param { value: 1 } }"), Y, "SSD"),
    Row(
        "an unknown source in the old format",
        'layers { name: "d" type: VIDEO_DATA top: "data" top: "label" }\n'
        + RELU.replace("layer", "layers").replace('"ReLU"', "RELU"),
        Y,
        inputs=SHAPES,
    ),
    Row("an unknown type between others", layer("BroadcastMul"), {"y": (2, 3, 8, 8)}, inputs=Y),
    Row("an unknown type without shapes", layer("BroadcastMul"), {}, "jolibrain"),
    Row(
        "resize_param twice",
        source(
            "AnnotatedData",
            "data_param { batch_size: 2 } transform_param { force_color: true resize_param { height: 8 width: 8 } "
            "resize_param { height: 16 width: 16 } }",
        ),
        {"data": (2, 3, 16, 16)},
    ),
    Row(
        "defaults of the SSD fork, stated",
        source(
            "AnnotatedData",
            "data_param { batch_size: 2 } transform_param { force_color: true "
            "resize_param { height: 8 width: 8 center_object: false max_angle: 0 } }",
        ),
        {"data": (2, 3, 8, 8)},
    ),
    Row("richness of a net", "richness: 50\n" + layer("ReLU"), Y, "no effect here"),
    Row("a size for each axis", layer("Pooling", "pooling_param { kernel_size: 1 kernel_size: 2 }"), {}, "kernel_h"),
    Row("a list of sizes", layer("Pooling", "pooling_param { kernel_size: [1, 2, 2] }"), {}, "one value for both axes"),
    Row("random_resize_param", source("Data", "transform_param { random_resize_param { } }"), {}, "Intel Caffe"),
    Row("eval_detection_param", layer("EvalDetection", "eval_detection_param { }"), {}, "Intel Caffe"),
    Row("scale_train", layer("Dropout", "dropout_param { scale_train: false }"), {}, "Faster R-CNN"),
    Row("PRE_FIXED", layer("SoftmaxWithLoss", "loss_param { normalization: PRE_FIXED }", "x x"), {}, "Intel Caffe"),
    Row(
        "a stage that is not given",
        layer("ReLU", 'include { stage: "train" }') + 'layer { name: "z" type: "ReLU" bottom: "y" top: "z" }',
        {},
        "--stage train",
    ),
    Row("a dropout of all, in tests", layer("Dropout", "dropout_param { dropout_ratio: 1 }"), Y, phase=1),
    Row(
        "a depthwise layer with another num_output",
        layer("ConvolutionDepthwise", "convolution_param { num_output: 16 kernel_size: 1 group: 16 }", channels=32),
        {"y": (2, 32, 8, 8)},
    ),
    Row("a BN of two forks (ILGNet)", layer("BN", "bn_param { slope_filler { } moving_average: true }"), Y),
    Row("a string for an old type", X % 3 + 'layers { name: "s" type: "Softmax" bottom: "x" top: "y" }', {}, "'layer'"),
    Row("a comment of C", "// a net\n" + layer("ReLU"), {}, "#"),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.fault)
def test_a_fault_of_other_peoples_nets_is_answered(row):
    said = []
    try:
        net = Net(read_net_text(row.text, "n"), row.phase, NetOptions(inputs=row.inputs), probe=probe)
    except InputError as error:
        assert not row.shapes, error
        said.append(str(error))
    else:
        assert row.shapes and row.shapes.items() <= {name: blob.shape for name, blob in net.blobs.items()}.items()
        said += net_warnings(net)
    assert row.words in " ".join(said)


def test_a_solver_that_tests_for_no_iteration_tests_nothing():
    assert nets_of_tests(read_solver_text('net: "n" test_iter: 0 test_interval: 1000')) == []
