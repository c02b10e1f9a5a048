"""The one list of op cases: every layer type and every record kind that a backend runs.

A case is a layer as prototxt writes it, maybe with an epilogue, and the shapes of its bottoms in up to four sizes:

    small    tens of elements: every mode of the CUDA emulator, and a GPU
    medium   tens to thousands: gradients by central differences, the cpu backend against the reference
    timing   larger than any cache: tools/bench_ops_cpu.py
    gpu      for the clock of a GPU: tools/gpu/layers.py

CASES     name -> OpCase                RECORDS   name -> RecordCase: ops that no layer makes (updates, fills, host I/O)
select()  the cases that have a size    CONV_EDGES   geometries at the edges of the tiles of implicit GEMM

A new layer or record kind is one line here; tests/test_cases.py fails for those without a case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from layermem import ops
from layermem.backends.registry import StepContext
from layermem.layers.images import image_shape
from layermem.ops import Tensor
from tests.op_case import Draw, Formula, OpCase, RecordCase, Shape

ODD = (2, 3, 5, 3)
QUADS = (2, 4, 5, 3)  # channels that CUDA kernels read four at a time
IMAGE = (2, 6, 7, 5)
TINY = (2, 3, 2, 5)
SLIVER = (3, 4, 5, 2)
BATCH = (64, 64, 56, 56)
PICTURES = (32, 3, 224, 224)
PIXELS = (4, 21, 480, 480)
ROWS = (4096, 1000)
MAPS = (128, 256, 56, 56)


CASES: dict[str, OpCase] = {}


def select(size: str, *, formula: bool = False) -> list[OpCase]:
    """The cases that name this size; `formula`: those whose top has a closed form."""
    return [case for case in CASES.values() if size in case.sizes and (case.formula is not None or not formula)]


def add(name: str, text: str, *, saved: str = "", formula: Formula | None = None, **more: Any) -> None:
    """A case; the sizes are keywords, one shape or a list of them."""
    sizes: dict[str, Sequence[Shape]] = {}
    for size in ("small", "medium", "timing", "gpu"):
        shapes = more.pop(size, None)
        if shapes is not None:
            sizes[size] = shapes if isinstance(shapes, list) else [shapes]
    assert name not in CASES, f"two cases are named '{name}'"
    CASES[name] = OpCase(name, text, sizes, saved=frozenset(saved.split()), formula=formula, **more)


def number(value: float) -> float:
    """A number as a float field of a message holds it."""
    return float(np.float32(value))


# -- activations: y0 = formula(x0) ---------------------------------------------------------------------------------


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def relu(x: np.ndarray, slope: float = 0) -> np.ndarray:
    return np.where(x > 0, x, slope * x)


def unary(name: str, kind: str, settings: str, formula: Formula, **more: Any) -> None:
    add(name, f'type: "{kind}" {settings}', formula=formula, **{"medium": TINY, **more})


BIG = {"medium": IMAGE, "timing": BATCH}
unary("ReLU", "ReLU", "", relu, small=ODD, gpu=MAPS, **BIG)
unary("ReLU from y", "ReLU", "", relu, small=ODD, saved="y0")
unary("ReLU of slope 1/8", "ReLU", "relu_param { negative_slope: 0.125 }", lambda x: relu(x, 1 / 8))
unary("ReLU of slope 0.1", "ReLU", "relu_param { negative_slope: 0.1 }", lambda x: relu(x, number(0.1)), medium=(3, 7))
unary("ReLU of slope -2", "ReLU", "relu_param { negative_slope: -2 }", lambda x: relu(x, -2))
unary("Clip", "Clip", "clip_param { min: -0.5 max: 0.7 }", lambda x: np.clip(x, -0.5, number(0.7)), **BIG)
unary("Clip to 0..1", "Clip", "clip_param { min: 0 max: 1 }", lambda x: np.clip(x, 0, 1), small=ODD)
unary("Clip from x", "Clip", "clip_param { min: 0 max: 1 }", lambda x: np.clip(x, 0, 1), small=ODD, saved="x0")
unary("Clip to -0.75..1.5", "Clip", "clip_param { min: -0.75 max: 1.5 }", lambda x: np.clip(x, -0.75, 1.5))
unary("ELU", "ELU", "", lambda x: np.where(x > 0, x, np.exp(x) - 1), small=ODD, **BIG)
unary("ELU of alpha 0.5", "ELU", "elu_param { alpha: 0.5 }", lambda x: np.where(x > 0, x, 0.5 * (np.exp(x) - 1)))
unary("Sigmoid", "Sigmoid", "", sigmoid, small=ODD, **BIG)
unary("TanH", "TanH", "", lambda x: (np.exp(2 * x) - 1) / (np.exp(2 * x) + 1), small=ODD, **BIG)
unary("AbsVal", "AbsVal", "", np.abs, small=ODD, **BIG)
unary("Power of 0.5 x + 3", "Power", "power_param { scale: 0.5 shift: 3 }", lambda x: x / 2 + 3, medium=IMAGE)
unary("Power of 5 - 2 x", "Power", "power_param { power: 1 scale: -2 shift: 5 }", lambda x: 5 - 2 * x)
unary("Power of 2 x", "Power", "power_param { scale: 2 }", lambda x: 2 * x, small=ODD)
unary("Power of x", "Power", "", lambda x: x)
unary("Power 2", "Power", "power_param { power: 2 }", np.square, small=ODD)
unary("Power", "Power", "power_param { power: 2 scale: 0.5 shift: 3 }", lambda x: (x / 2 + 3) ** 2, **BIG)
unary("Power 2 of 3 x - 1", "Power", "power_param { power: 2 scale: 3 shift: -1 }", lambda x: (3 * x - 1) ** 2)
unary(
    "Power 0.375",
    "Power",
    "power_param { power: 0.375 scale: 2 shift: 1 }",
    lambda x: (1 + 2 * x) ** 0.375,
    positive=True,
)
unary("Power 0", "Power", "power_param { power: 0 scale: 2 shift: 1 }", np.ones_like)
unary("Power of a constant", "Power", "power_param { power: 3 scale: 0 shift: 2 }", lambda x: np.full_like(x, 8))
unary(
    "Power 1.7",
    "Power",
    "power_param { power: 1.7 scale: 0.01 shift: 3 }",
    lambda x: (3 + number(0.01) * x) ** number(1.7),
    timing=BATCH,
)
unary("Exp", "Exp", "", np.exp, small=ODD, timing=BATCH)
unary("Exp to base 2", "Exp", "exp_param { base: 2 scale: 0.5 }", lambda x: 2 ** (x / 2), medium=IMAGE)
unary("Exp of 1 + 3 x to base 2", "Exp", "exp_param { base: 2 scale: 3 shift: 1 }", lambda x: 2 ** (1 + 3 * x))
unary("Exp of 0.5 x - 1", "Exp", "exp_param { scale: 0.5 shift: -1 }", lambda x: np.exp(x / 2 - 1))
unary("Log", "Log", "", np.log, small=ODD, positive=True)
unary("Log to base 2", "Log", "log_param { base: 2 scale: 3 shift: 1 }", lambda x: np.log2(1 + 3 * x), positive=True)
unary(
    "Log to base 2 of 0.1 x + 3",
    "Log",
    "log_param { base: 2 scale: 0.1 shift: 3 }",
    lambda x: np.log2(3 + number(0.1) * x),
    medium=IMAGE,
)
unary(
    "Log of 0.01 x + 9",
    "Log",
    "log_param { scale: 0.01 shift: 9 }",
    lambda x: np.log(9 + number(0.01) * x),
    timing=BATCH,
)
unary("BNLL", "BNLL", "", lambda x: np.log(1 + np.exp(x)), small=ODD, **BIG)
unary("Swish", "Swish", "", lambda x: x * sigmoid(x), small=ODD, timing=BATCH)
unary("Swish of beta 0.7", "Swish", "swish_param { beta: 0.7 }", lambda x: x * sigmoid(number(0.7) * x), medium=IMAGE)
unary("Swish of beta 1.5", "Swish", "swish_param { beta: 1.5 }", lambda x: x * sigmoid(1.5 * x))
unary("Threshold", "Threshold", "", lambda x: (x > 0).astype(float), small=ODD)
unary(
    "Threshold of 0.2",
    "Threshold",
    "threshold_param { threshold: 0.2 }",
    lambda x: (x > number(0.2)).astype(float),
    medium=IMAGE,
)
unary("ReLU6", "ReLU6", "", lambda x: np.clip(x, 0, 6), small=ODD, **BIG)
add("PReLU", 'type: "PReLU"', small=ODD, **BIG)
add("PReLU by quads", 'type: "PReLU"', small=QUADS)
add("PReLU, shared", 'type: "PReLU" prelu_param { channel_shared: true }', medium=IMAGE)
add("Dropout", 'type: "Dropout"', small=ODD, timing=BATCH, gpu=MAPS)
add("Dropout of 0.3", 'type: "Dropout" dropout_param { dropout_ratio: 0.3 }', medium=IMAGE)

# -- convolutions and inner products -------------------------------------------------------------------------------

# settings besides num_output, num_output, shape of x
CONV_EDGES = {
    "one by one": ("kernel_size: 1", 20, (2, 36, 7, 13)),
    "one by one, strided": ("kernel_size: 1 stride: 2", 72, (1, 20, 13, 7)),
    "three by three": ("kernel_size: 3 pad: 1", 36, (2, 20, 7, 7)),
    "first layer": ("kernel_size: 7 stride: 2 pad: 3", 12, (2, 3, 23, 15)),
    "five by five without pad": ("kernel_size: 5", 20, (2, 1, 13, 13)),
    "even kernel, wide pad": ("kernel_size: 2 pad: 3", 3, (1, 4, 7, 6)),
    "width one": ("kernel_h: 3 kernel_w: 1 pad_h: 1 pad_w: 0 stride: 1", 20, (2, 4, 13, 1)),
    "stride three and two": ("kernel_size: 3 stride_h: 3 stride_w: 2 pad: 1", 4, (2, 20, 13, 13)),
    "stride beyond the kernel": ("kernel_h: 2 kernel_w: 1 stride: 3", 4, (1, 4, 13, 12)),
    "dilated": ("kernel_size: 3 pad: 2 dilation: 2", 8, (2, 4, 13, 7)),
    "dilated by the stride": ("kernel_size: 3 pad: 2 dilation: 2 stride: 2", 8, (1, 4, 9, 8)),
    "dilation and stride without a common factor": (
        "kernel_h: 3 kernel_w: 2 pad: 1 dilation: 3 dilation: 2 stride: 2",
        20,
        (2, 3, 13, 11),
    ),
    "two groups": ("kernel_size: 3 pad: 1 group: 2", 36, (2, 72, 7, 5)),
    "a group a channel": ("kernel_size: 3 pad: 1 stride: 2 group: 20", 20, (2, 20, 7, 7)),
    "more outputs than inputs in a group": ("kernel_size: 1 group: 4", 12, (1, 4, 7, 7)),
    "long sum": ("kernel_size: 1", 20, (1, 500, 2, 3)),
    "one pixel": ("kernel_size: 3", 72, (1, 36, 3, 3)),
    "parts of the weight gradient": ("kernel_size: 3 pad: 1", 4, (6, 4, 13, 13)),
    "a tile of 128 outputs": ("kernel_size: 1", 140, (3, 8, 9, 5)),
    "an image in pieces": ("kernel_size: 3 pad: 1", 8, (1, 4, 27, 23)),
    "an image of three channels in pieces": ("kernel_size: 3 pad: 1", 8, (1, 3, 27, 23)),
}

# The same, for a convolution and its ReLU: a byte of the mask holds eight channels of a pixel, or parts of two pixels.
RELU_EDGES = {
    "whole bytes of two tiles": ("kernel_size: 1", 136, (3, 8, 9, 5)),
    "whole bytes in two groups": ("kernel_size: 3 pad: 1 group: 2", 48, (2, 6, 7, 5)),
    "whole bytes, three channels": ("kernel_size: 7 stride: 2 pad: 3", 64, (1, 3, 23, 15)),
    "bytes across groups": ("kernel_size: 1 group: 4", 16, (1, 8, 7, 13)),
    "bytes of eight groups": ("kernel_size: 3 pad: 1 group: 40", 40, (2, 40, 7, 5)),
    "bytes of four groups": ("kernel_size: 2 group: 12", 24, (2, 12, 7, 5)),
    "bytes across pixels": ("kernel_size: 3 pad: 1", 36, (2, 20, 7, 7)),
}

# precision -> bound of forward and data gradient, of the weight gradient's long sums, and a lower bound of the error
PRECISION_BOUNDS = {"fp32x3": (2e-6, 1e-5, 0), "tf32": (5e-4, 5e-4, 1e-4), "bf16": (4e-3, 4e-3, 1e-3)}


def conv_text(outputs: int, settings: str, kind: str = "Convolution", more: str = "") -> str:
    return f'type: "{kind}" {more} convolution_param {{ num_output: {outputs} {settings} }}'


def edge_case(name: str, kind: str = "Convolution", *, bias: bool = False, **more: Any) -> OpCase:
    """The entry of CONV_EDGES or RELU_EDGES as a case of `kind`."""
    settings, outputs, shape = {**CONV_EDGES, **RELU_EDGES}[name]
    text = conv_text(outputs, settings if bias else f"{settings} bias_term: false", kind)
    return OpCase(f"{kind}: {name}", text, {"small": [shape]}, **more)


def conv(name: str, outputs: int, settings: str, kind: str = "Convolution", tops: str = "", **more: Any) -> None:
    add(name, conv_text(outputs, settings, kind, tops), **more)


STRIDED = "kernel_size: 3 pad: 1 stride: 2"
conv("Convolution 3x3/2", 4, STRIDED, medium=IMAGE)
conv("Convolution, groups and dilation", 4, "kernel_size: 3 group: 2 dilation: 2 pad: 2", medium=IMAGE)
conv("Convolution 1x1", 8, "kernel_size: 1 bias_term: false", medium=IMAGE)
conv("Convolution, depthwise", 6, "kernel_h: 3 kernel_w: 1 group: 6", medium=IMAGE)
conv("ConvolutionDepthwise", 6, "kernel_size: 3 pad: 1", "ConvolutionDepthwise", medium=IMAGE)
conv("DepthwiseConvolution by two", 6, "kernel_size: 3 stride: 2 group: 3", "DepthwiseConvolution", small=(2, 3, 5, 4))
for _name, _channels, _settings in (
    ("3x3", 8, "kernel_size: 3 pad: 1"),
    ("3x3/2", 12, "kernel_size: 3 pad: 1 stride: 2"),
    ("5x5", 4, "kernel_size: 5 pad: 2"),
    ("5x5/2", 36, "kernel_size: 5 pad: 2 stride: 2"),
    ("by quads", 8, "kernel_h: 2 kernel_w: 3 pad: 1 dilation: 2"),
):
    for _kind in ("Convolution", "Deconvolution"):
        conv(
            f"{_kind}, depthwise {_name}",
            _channels,
            f"{_settings} group: {_channels}",
            _kind,
            small=(2, _channels, 7, 5),
            medium=(3, _channels, 9, 6),
        )
for _each, _groups in ((4, 2), (8, 2), (16, 2)):
    for _stride in (1, 2):
        conv(
            f"Convolution, groups of {_each}{'/2' * (_stride - 1)}",
            _groups * _each,
            f"kernel_size: 3 pad: 1 stride: {_stride} group: {_groups}",
            small=(1, _groups * _each, 4, 3),
        )
conv(
    "Convolution of two bottoms",
    4,
    "kernel_size: 3",
    tops='top: "a" top: "b"',
    small=[(1, 3, 5, 4), (1, 3, 5, 4)],
    medium=[IMAGE, IMAGE],
)
conv(
    "Deconvolution of two bottoms",
    3,
    "kernel_size: 2",
    "Deconvolution",
    tops='top: "a" top: "b"',
    small=[(1, 2, 4, 3), (1, 2, 4, 3)],
)
conv("Convolution of many channels", 33, "kernel_size: 3 pad: 1", medium=(2, 36, 17, 13))
conv("Convolution of many channels in groups", 80, "kernel_size: 3 pad: 1 group: 2", medium=(2, 72, 17, 13))
conv("Convolution by quads", 8, STRIDED, small=(2, 4, 5, 4))
conv("Convolution by octets", 24, STRIDED, small=(2, 16, 5, 4))
conv("Convolution", 5, "kernel_size: 2 dilation: 2", small=(2, 3, 5, 4))
conv("Convolution, grouped", 6, "kernel_size: 3 pad: 1 group: 3", small=(1, 3, 4, 4))
conv("Convolution in parts", 4, "kernel_size: 1", small=(4, 4, 12, 12))
conv("Convolution, wide", 40, "kernel_size: 1", small=(1, 4, 9, 15))
conv("Convolution, wide and odd", 41, "kernel_size: 1", small=(1, 3, 9, 15))
conv("Deconvolution 3x3/2", 4, STRIDED, "Deconvolution", medium=IMAGE)
conv("Deconvolution, grouped", 4, "kernel_size: 2 group: 2", "Deconvolution", medium=IMAGE)
conv("Deconvolution", 4, "kernel_size: 3 stride: 2", "Deconvolution", small=(1, 4, 4, 3))
conv("Deconvolution by octets", 16, "kernel_size: 3 stride: 2", "Deconvolution", small=(1, 8, 4, 3))
conv("Convolution + ReLU", 40, STRIDED, small=(2, 4, 5, 4), relu=True)
conv("Convolution + ReLU, grouped", 16, "kernel_size: 1 group: 2", small=(1, 6, 7, 13), relu=True)
conv("Convolution + ReLU from y", 5, "kernel_size: 2", small=(2, 3, 5, 4), relu=True, saved="y0")
conv("Convolution + residual + ReLU", 40, STRIDED, small=(2, 4, 5, 4), residual=True, relu=True)
conv("Convolution + residual", 5, "kernel_size: 2", small=(2, 3, 5, 4), residual=True)


def of_rank(name: str, text: str, shape: Shape, *, axis: int = 1, **more: Any) -> None:
    """The part of a convolution over blobs of `shape` that works on their images; `shape` is also Caffe's of a top."""
    dims = " ".join(f"dim: {d}" for d in shape)
    images = image_shape(shape, axis)
    add(name, f"{text} input_param {{ shape {{ {dims} }} }}", **{s: [images] * n for s, n in more.items()})


CLIP, CLIPS = (2, 3, 4, 4, 3), (2, 4, 4, 3, 3)
PAIR = 'top: "a" top: "b"'
FAR = "kernel_size: 2 stride: 3"
of_rank("Convolution of clips", conv_text(4, "kernel_size: 3 pad: 1 stride: 2"), CLIP, small=1)
of_rank("Convolution of clips of many channels", conv_text(36, "kernel_size: 3 pad: 1"), (2, 24, 5, 6, 7), medium=1)
of_rank(
    "Convolution of clips, grouped, of two bottoms",
    conv_text(4, "kernel_size: 2 group: 2 dilation: 2 dilation: 1 dilation: 1", more=PAIR),
    CLIPS,
    medium=2,
)
of_rank(
    "Convolution of clips, frames in the pad",
    conv_text(4, "kernel_size: 2 pad: 3 pad: 0 pad: 1 stride: 2"),
    (2, 2, 2, 3, 3),
    medium=1,
)
of_rank(
    "Convolution of clips, images only", conv_text(4, "kernel_size: 1 kernel_size: 3 kernel_size: 3"), CLIP, medium=1
)
of_rank(
    "Convolution of four spatial axes",
    conv_text(3, "kernel_size: 2 stride: 2 stride: 1 stride: 1 stride: 1"),
    (1, 2, 3, 2, 3, 2),
    medium=1,
)
of_rank(
    "Deconvolution of clips",
    conv_text(4, "kernel_size: 3 stride: 2 pad: 1", "Deconvolution"),
    (2, 3, 3, 2, 2),
    medium=1,
)
of_rank(
    "Deconvolution of clips with gaps, of two bottoms",
    conv_text(4, FAR, "Deconvolution", PAIR),
    (1, 4, 2, 2, 2),
    small=2,
)
of_rank("Convolution of signals", conv_text(4, "kernel_size: 3 pad: 1 stride: 2"), (2, 3, 9), medium=1)
of_rank("Convolution of items in two axes", conv_text(4, "kernel_size: 2 axis: 2"), CLIPS, axis=2, medium=1)
of_rank("Deconvolution of points", conv_text(4, "axis: -1", "Deconvolution"), (2, 5), medium=1)
of_rank("Im2col of clips", 'type: "Im2col" convolution_param { kernel_size: 2 pad: 1 stride: 2 }', CLIP, small=1)
of_rank("Im2col of clips with gaps", f'type: "Im2col" convolution_param {{ {FAR} }}', (1, 2, 5, 4, 3), medium=1)
of_rank("FromImages", 'type: "FromImages" convolution_param { axis: 1 }', CLIP, medium=1)
of_rank("FromImages of lines", 'type: "FromImages" convolution_param { axis: 2 }', TINY, axis=2, medium=1)
for _name, _shape, _axis in (("AsImages", CLIP, 1), ("AsImages of lines", TINY, 2)):
    of_rank(_name, f'type: "AsImages" convolution_param {{ axis: {_axis} }}', _shape)
    CASES[_name] = replace(CASES[_name], sizes={"medium": [_shape]})

for _name, _outputs, _settings, _shape in (
    ("VGG conv2_2", 128, "kernel_size: 3 pad: 1", (64, 128, 112, 112)),
    ("VGG conv3_2", 256, "kernel_size: 3 pad: 1", (64, 256, 56, 56)),
    ("VGG conv3_2 and ReLU", 256, "kernel_size: 3 pad: 1", (64, 256, 56, 56)),
    ("VGG conv5_2", 512, "kernel_size: 3 pad: 1", (64, 512, 14, 14)),
    ("ResNet conv1", 64, "kernel_size: 7 stride: 2 pad: 3", (128, 3, 224, 224)),
    ("ResNet res2 1x1", 256, "kernel_size: 1", (128, 64, 56, 56)),
    ("ResNet res3 3x3", 128, "kernel_size: 3 pad: 1", (128, 128, 28, 28)),
    ("ResNet res4 1x1", 256, "kernel_size: 1", (128, 1024, 14, 14)),
    ("ResNet res4 down", 256, "kernel_size: 3 stride: 2 pad: 1", (128, 256, 28, 28)),
    ("ResNet res5 3x3", 512, "kernel_size: 3 pad: 1", (128, 512, 7, 7)),
):
    conv(_name, _outputs, f"{_settings} bias_term: false", gpu=_shape, relu=_name.endswith("ReLU"))
for _name, _channels, _settings, _size in (
    ("MobileNet conv4/dw", 128, "kernel_size: 3 pad: 1", 56),
    ("MobileNet conv5/dw", 128, "kernel_size: 3 pad: 1 stride: 2", 56),
    ("MobileNet conv14/dw", 1024, "kernel_size: 3 pad: 1", 7),
):
    conv(_name, _channels, f"{_settings} bias_term: false", "ConvolutionDepthwise", gpu=(128, _channels, _size, _size))
for _name, _channels, _settings, _size in (
    ("ResNeXt stage2 3x3", 128, "kernel_size: 3 pad: 1", 56),
    ("ResNeXt stage3 3x3", 256, "kernel_size: 3 pad: 1", 28),
    ("ResNeXt stage3 down", 256, "kernel_size: 3 pad: 1 stride: 2", 56),
    ("ResNeXt stage4 3x3", 512, "kernel_size: 3 pad: 1", 14),
):
    conv(_name, _channels, f"group: 32 {_settings} bias_term: false", gpu=(128, _channels, _size, _size))


def product(name: str, settings: str, **more: Any) -> None:
    add(name, f'type: "InnerProduct" inner_product_param {{ {settings} }}', **more)


product("InnerProduct", "num_output: 5", small=(6, 7))
product("InnerProduct by quads", "num_output: 12", small=(6, 8))
product("InnerProduct + ReLU", "num_output: 5", small=(6, 7), relu=True)
product("InnerProduct by octets + ReLU", "num_output: 16", small=(6, 24), relu=True)
product("InnerProduct in parts", "num_output: 9", small=(3, 512))
product("InnerProduct in parts + ReLU", "num_output: 16", small=(3, 512), relu=True)
product("InnerProduct with a gradient in parts", "num_output: 512", small=(3, 12))
product("InnerProduct of rows", "num_output: 9", medium=(5, 11))
product("InnerProduct of images", "num_output: 9", medium=IMAGE)
product("InnerProduct from axis 2", "num_output: 9 axis: 2", medium=IMAGE)
product("InnerProduct from axis 3", "num_output: 9 axis: 3", medium=IMAGE)
product("InnerProduct into an image", "num_output: 9 axis: 3", medium=(4, 6, 1, 1))
product("InnerProduct from five axes", "num_output: 9 axis: 3", medium=(2, 3, 4, 5, 6))
product("InnerProduct of images, transposed", "num_output: 9 transpose: true bias_term: false", medium=IMAGE)
product("InnerProduct, transposed", "num_output: 9 transpose: true", medium=(5, 11))

conv("Convolution 2x2", 3, "kernel_size: 2 pad: 1", medium=SLIVER)
product("InnerProduct without bias", "num_output: 7 bias_term: false", medium=SLIVER)


def add_epilogues(name: str, *, residual: bool) -> None:
    """The case with a ReLU, from its mask or from y, and with a residual where the op takes one."""
    for saved in ("", "y0"):
        for sums in (False, True)[: 1 + residual]:
            fused = f"{name}{' + residual' * sums} + ReLU{' from y' * bool(saved)}"
            CASES[fused] = replace(CASES[name], name=fused, residual=sums, relu=True, saved=frozenset(saved.split()))
    if residual:
        CASES[f"{name} + residual"] = replace(CASES[name], name=f"{name} + residual", residual=True)


for _name in (
    "Convolution 3x3/2",
    "Convolution, groups and dilation",
    "Convolution 1x1",
    "Convolution, depthwise",
    "Convolution of many channels",
    "InnerProduct of images",
    "InnerProduct from axis 2",
    "InnerProduct of images, transposed",
):
    add_epilogues(_name, residual=False)
add_epilogues("Convolution 2x2", residual=True)
add_epilogues("InnerProduct without bias", residual=True)

# -- windows, sums of blobs ----------------------------------------------------------------------------------------


def pool(name: str, settings: str, **more: Any) -> None:
    add(name, f'type: "Pooling" pooling_param {{ {settings} }}', **more)


pool("Pooling MAX 3/2", "kernel_size: 3 stride: 2", small=ODD, timing=BATCH, gpu=MAPS)
pool("Pooling MAX 3/2, padded", "kernel_size: 3 stride: 2 pad: 1", medium=IMAGE)
pool("Pooling MAX 3/1", "kernel_size: 3 pad: 1", medium=IMAGE, timing=BATCH)
pool("Pooling MAX by quads", "kernel_size: 2 pad: 1", small=QUADS)
pool("Pooling MAX 3/2, ceil_mode false", "kernel_size: 3 stride: 2 ceil_mode: false", medium=(2, 3, 6, 6))
add(
    "Pooling MAX and its mask",
    'type: "Pooling" top: "y" top: "m" pooling_param { kernel_size: 3 stride: 2 pad: 1 }',
    small=ODD,
    medium=IMAGE,
)
pool("Pooling STOCHASTIC", "pool: STOCHASTIC kernel_size: 2", small=ODD, positive=True)
pool("Pooling STOCHASTIC 3/2", "pool: STOCHASTIC kernel_size: 3 stride: 2", medium=IMAGE, positive=True)
pool(
    "Pooling STOCHASTIC of maps",
    "pool: STOCHASTIC global_pooling: true",
    medium=(1, 3, 19, 17),
    small=(1, 3, 19, 17),
    positive=True,
)
pool("Pooling STOCHASTIC in TEST", "pool: STOCHASTIC kernel_size: 3 stride: 2", small=ODD, medium=IMAGE, phase=1)
pool("Pooling AVE 3/2", "pool: AVE kernel_size: 3 stride: 2", small=ODD)
pool("Pooling AVE 3/2, padded", "pool: AVE kernel_size: 3 stride: 2 pad: 1", medium=IMAGE)
pool("Pooling AVE by quads", "pool: AVE kernel_size: 2 pad: 1", small=QUADS)
pool("Pooling AVE", "pool: AVE global_pooling: true", medium=IMAGE, timing=BATCH)


def regions(items: int, pixels: int) -> Draw:
    """Corners of regions of interest in images of that many pixels, some beyond the border."""

    def draw(rng: np.random.Generator, shape: Shape) -> np.ndarray:
        rois = rng.integers(-3, pixels + 3, (shape[0], 5)).astype(float)
        rois[:, 0] = rng.integers(0, items, shape[0])
        rois[1:, 3:] = np.maximum(rois[1:, 3:], rois[1:, 1:3])  # the first may be malformed: then it is one pixel
        return rois.reshape(shape)

    return draw


def roi_pool(name: str, settings: str, items: int, pixels: int, **more: Any) -> None:
    add(name, f'type: "ROIPooling" roi_pooling_param {{ {settings} }}', drawn={1: regions(items, pixels)}, **more)


roi_pool("ROIPooling 2x3", "pooled_h: 2 pooled_w: 3", 2, 5, small=[ODD, (4, 5)])
roi_pool(
    "ROIPooling 3x2 of half size", "pooled_h: 3 pooled_w: 2 spatial_scale: 0.5", 2, 12, medium=[IMAGE, (6, 5, 1, 1)]
)
roi_pool("ROIPooling 7x7", "pooled_h: 7 pooled_w: 7 spatial_scale: 0.0625", 2, 600, timing=[(2, 512, 38, 50), (128, 5)])


for _size, _g, _k, _scale, _shapes in (
    ("small", 2, 3, 1, [(2, 12, 5, 3), (4, 5)]),
    ("medium", 3, 2, 0.5, [(2, 18, 7, 5), (6, 5)]),
    ("timing", 7, 21, 0.0625, [(2, 1029, 38, 50), (128, 5)]),
):
    add(
        f"PSROIPooling {_g}x{_g}",
        f'type: "PSROIPooling" psroi_pooling_param {{ output_dim: {_k} group_size: {_g} spatial_scale: {_scale} }}',
        drawn={1: regions(2, {"small": 5, "medium": 12, "timing": 600}[_size])},
        **{_size: _shapes},
    )


def boxes(rng: np.random.Generator, count: int) -> np.ndarray:
    """Boxes of at least a fifth of the image along each axis; some cross its border."""
    low = rng.uniform(-0.05, 0.6, (count, 2))
    return np.concatenate([low, low + rng.uniform(0.2, 0.45, (count, 2))], axis=1)


def priors(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Boxes and their variances, as PriorBox gives them."""
    count = shape[2] // 4
    return np.stack([boxes(rng, count), np.tile([0.1, 0.1, 0.2, 0.2], (count, 1))]).reshape(shape)


def truth(items: int, classes: int) -> Draw:
    """Rows of true boxes of the first items, the last row unused and the one before difficult."""

    def draw(rng: np.random.Generator, shape: Shape) -> np.ndarray:
        rows = shape[2]
        item, label = rng.integers(0, items, rows), rng.integers(1, classes, rows)
        instance, difficult = np.zeros(rows), np.arange(rows) == rows - 2
        table = np.column_stack([item, label, instance, boxes(rng, rows), difficult])
        table[-1, 0] = -1
        return table.reshape(shape)

    return draw


def multibox(name: str, settings: str, *, each: int = 1) -> None:
    """Add a case over 3 items, the last without a box, of 9 priors with 3 classes and `each` locations per prior."""
    add(
        f"MultiBoxLoss{name}",
        f'type: "MultiBoxLoss" multibox_loss_param {{ num_classes: 3 {settings} }}',
        medium=[(3, 9 * each * 4), (3, 9 * 3), (1, 2, 9 * 4), (1, 1, 7, 8)],
        drawn={2: priors, 3: truth(2, 3)},
    )


CENTER = "code_type: CENTER_SIZE"
multibox("", CENTER)
multibox(", bipartite", "match_type: BIPARTITE use_difficult_gt: false neg_pos_ratio: 1.5 loc_weight: 0.5")
multibox(", logistic, L2", f"{CENTER} mining_type: NONE conf_loss_type: LOGISTIC loc_loss_type: L2")
multibox(", corners of size", "code_type: CORNER_SIZE encode_variance_in_target: true neg_overlap: 0.2")
multibox(
    " of predictions",
    f"{CENTER} use_prior_for_matching: false overlap_threshold: 0.3 bp_inside: true "
    "nms_param { nms_threshold: 0.4 top_k: 5 }",
)
multibox(
    " of hard examples",
    "mining_type: HARD_EXAMPLE sample_size: 4 overlap_threshold: 0.3 "
    "nms_param { nms_threshold: 0.6 top_k: 7 } use_prior_for_nms: true",
)
multibox(
    " by class", "share_location: false mining_type: NONE use_prior_for_matching: false overlap_threshold: 0.2", each=3
)
multibox(" by class of priors", "share_location: false mining_type: NONE ignore_cross_boundary_bbox: true", each=3)
multibox(", batch size", f"{CENTER} bp_inside: true }} loss_param {{ normalization: BATCH_SIZE")


def shares(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Shares of three classes."""
    powers = np.exp(rng.standard_normal((shape[0], shape[1] // 3, 3)))
    return (powers / powers.sum(axis=2, keepdims=True)).reshape(shape)


def detect(name: str, settings: str, *, each: int = 1) -> None:
    """Add a case over 2 items of 9 priors with 3 classes."""
    add(
        f"DetectionOutput{name}",
        f'type: "DetectionOutput" detection_output_param {{ num_classes: 3 {settings} }}',
        medium=[(2, 9 * each * 4), (2, 27), (1, 2, 36)],
        drawn={1: shares, 2: priors},
    )


detect("", "nms_param { nms_threshold: 0.3 }")
detect(" of SSD", f"{CENTER} nms_param {{ nms_threshold: 0.45 top_k: 6 }} keep_top_k: 5 confidence_threshold: 0.2")
detect(" by class", "share_location: false code_type: CORNER_SIZE nms_param { nms_threshold: 0.6 eta: 0.9 }", each=3)
detect(", clipped", f"{CENTER} nms_param {{ nms_threshold: 0.45 }} clip: true")
detect(", no background", "background_label_id: -1 variance_encoded_in_target: true keep_top_k: 50")


def detections(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    rows = shape[2]
    columns = [rng.integers(0, 2, rows), rng.integers(1, 3, rows), rng.random(rows), boxes(rng, rows)]
    return np.column_stack(columns).reshape(shape)


add(
    "DetectionEvaluate",
    'type: "DetectionEvaluate" detection_evaluate_param { num_classes: 3 overlap_threshold: 0.3 '
    "evaluate_difficult_gt: false }",
    medium=[(1, 1, 9, 7), (1, 1, 6, 8)],
    drawn={0: detections, 1: truth(2, 3)},
)


def image_sizes(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    windows = np.tile(np.array([0, 0.1, 1, 0.9]), (shape[0], 1))
    return np.column_stack([windows, rng.integers(5, 50, (shape[0], 2))])


add(
    "DetectionEvaluate in pixels",
    'type: "DetectionEvaluate" detection_evaluate_param { num_classes: 3 overlap_threshold: 0.3 }',
    medium=[(1, 1, 9, 7), (1, 1, 6, 8), (2, 6)],
    drawn={0: detections, 1: truth(2, 3), 2: image_sizes},
)


def cell_truth(classes: int) -> Draw:
    """Rows of true boxes for grids; the last row of each item is unused, and the last item has no box."""

    def draw(rng: np.random.Generator, shape: Shape) -> np.ndarray:
        rows = shape[:2]
        numbers = [rng.integers(0, classes, rows), *rng.random((2, *rows)), *rng.uniform(0.1, 0.7, (2, *rows))]
        table = np.stack(numbers, axis=-1)
        table[:, -1], table[-1] = 0, 0
        return table.reshape(shape)

    return draw


def region(name: str, settings: str, **more: Any) -> None:
    """Add a case over grids of 3 x 3 cells, 2 anchors and 3 classes."""
    add(
        f"RegionLoss{name}",
        f'type: "RegionLoss" region_loss_param {{ num: 2 num_class: 3 biases: [1.2, 0.7, 0.5, 1.6] {settings} }}',
        medium=[(2, 16, 3, 3), (2, 5, 5)],
        drawn={1: cell_truth(3)},
        derivative=False,
        **more,
    )


region("", "object_scale: 5 noobject_scale: 1 coord_scale: 1 thresh: 0.3")
region(" of sizes, no warm-up", "rescore: 0 bias_match: 0 thresh: 0.1 class_scale: 0.5", phase=1)


def yolov3(name: str, settings: str) -> None:
    """Add a case over grids of 3 x 3 cells, 2 of 3 anchors and 3 classes."""
    add(
        f"Yolov3{name}",
        'type: "Yolov3" yolov3_param { num: 2 num_class: 3 biases: [12, 7, 30, 30, 5, 16] '
        f"mask: [2, 0] anchors_scale: 10 {settings} }}",
        medium=[(2, 16, 3, 3), (2, 9, 5)],
        drawn={1: cell_truth(3)},
        derivative=False,
    )


yolov3("", "thresh: 0.3 class_scale: 0.5")
yolov3(" of squares", "use_logic_gradient: true object_scale: 5 coord_scale: 1")
GRID = "confidence_threshold: 0.1 nms_threshold: 0.3"
add(
    "YoloDetectionOutput",
    'type: "YoloDetectionOutput" yolo_detection_output_param { num_box: 2 num_classes: 3 '
    f"{GRID} biases: [1.2, 0.7, 0.5, 1.6] }}",
    medium=[(2, 16, 3, 3), (2, 16, 5, 5)],
)
add(
    "Yolov3DetectionOutput",
    'type: "Yolov3DetectionOutput" yolov3_detection_output_param { num_box: 2 num_classes: 3 '
    f"{GRID} biases: [10, 14, 23, 27, 37, 58, 81, 82] mask: [2, 3, 0, 1] anchors_scale: [32, 16] }}",
    medium=[(2, 16, 3, 3), (2, 16, 5, 5)],
)


def im2col(name: str, settings: str, **more: Any) -> None:
    add(name, f'type: "Im2col" convolution_param {{ {settings} }}', **more)


im2col("Im2col", "kernel_size: 2", small=ODD, timing=BATCH)
im2col("Im2col 3x3/2, padded", "kernel_size: 3 stride: 2 pad: 1", small=QUADS, medium=IMAGE)
im2col("Im2col, dilated", "kernel_h: 3 kernel_w: 2 dilation: 2 pad_h: 3 pad_w: 0 stride: 1", medium=IMAGE)
im2col("Im2col, stride beyond the kernel", "kernel_size: 1 stride: 3", small=(1, 2, 7, 4))


def eltwise(name: str, settings: str, count: int, formula: Formula, **more: Any) -> None:
    sizes = {size: [more.pop(size)] * count for size in ("small", "medium", "timing", "gpu") if size in more}
    sizes = sizes or {"medium": [(2, 3, 2, 4)] * count}
    add(name, f'type: "Eltwise" eltwise_param {{ {settings} }}', formula=formula, **sizes, **more)


def largest(*xs: np.ndarray) -> np.ndarray:
    return np.max(xs, axis=0)


eltwise("Eltwise SUM", "", 2, lambda a, b: a + b, medium=IMAGE, timing=BATCH, gpu=MAPS)
eltwise("Eltwise SUM of three", "operation: SUM", 3, lambda a, b, c: a + b + c)
eltwise("Eltwise a + 2 b", "coeff: 1 coeff: 2", 2, lambda a, b: a + 2 * b, small=ODD)
eltwise("Eltwise a - b", "coeff: 1 coeff: -1", 2, lambda a, b: a - b)
eltwise("Eltwise a - b/2", "coeff: 1 coeff: -0.5", 2, lambda a, b: a - b / 2, medium=IMAGE)
eltwise("Eltwise a - b/2 + 2 c", "coeff: 1 coeff: -0.5 coeff: 2", 3, lambda a, b, c: a - b / 2 + 2 * c)
eltwise("Eltwise PROD of two", "operation: PROD", 2, lambda a, b: a * b, timing=BATCH)
eltwise("Eltwise PROD", "operation: PROD", 3, lambda a, b, c: a * b * c, small=ODD, medium=IMAGE)
eltwise("Eltwise PROD of four", "operation: PROD", 4, lambda a, b, c, d: a * b * c * d)
eltwise("Eltwise PROD, unstable", "operation: PROD stable_prod_grad: false", 3, lambda a, b, c: a * b * c)
eltwise("Eltwise MAX", "operation: MAX", 2, largest, small=ODD, medium=IMAGE, timing=BATCH)
eltwise("Eltwise MAX of four", "operation: MAX", 4, largest)
eltwise("Eltwise a - 2 b + ReLU", "coeff: 1 coeff: -2", 2, lambda a, b: relu(a - 2 * b), small=ODD, relu=True)
eltwise(
    "Eltwise a - b + ReLU from y", "coeff: 1 coeff: -1", 2, lambda a, b: relu(a - b), small=ODD, relu=True, saved="y0"
)
eltwise("Eltwise SUM + ReLU", "", 2, lambda a, b: relu(a + b), gpu=MAPS, relu=True)
for _saved in ("", "y0"):
    _from_y = " from y" * bool(_saved)
    eltwise(
        f"Eltwise a - b/2 + ReLU{_from_y}",
        "coeff: 1 coeff: -0.5",
        2,
        lambda a, b: relu(a - b / 2),
        medium=IMAGE,
        relu=True,
        saved=_saved,
    )
    eltwise(
        f"Eltwise a - 2 b + c/2 + ReLU{_from_y}",
        "coeff: 1 coeff: -2 coeff: 0.5",
        3,
        lambda a, b, c: relu(a - 2 * b + c / 2),
        medium=SLIVER,
        relu=True,
        saved=_saved,
    )

# -- normalization -------------------------------------------------------------------------------------------------

LOOSE = {"tolerance": 1e-5}
add("LRN", 'type: "LRN"', timing=BATCH)
add("LRN of five", 'type: "LRN" lrn_param { local_size: 5 alpha: 0.3 }', medium=IMAGE)
add("LRN of three", 'type: "LRN" lrn_param { local_size: 3 alpha: 1 }', small=ODD)
add("LRN by quads", 'type: "LRN" lrn_param { local_size: 7 alpha: 1 }', small=QUADS)
add("LRN, another beta", 'type: "LRN" lrn_param { local_size: 5 alpha: 1 beta: 0.6 }', small=ODD)
add("LRN of AlexNet", 'type: "LRN" lrn_param { local_size: 5 alpha: 1e-4 beta: 0.75 }', gpu=MAPS)
add("LRN within", 'type: "LRN" lrn_param { local_size: 3 norm_region: WITHIN_CHANNEL }', timing=BATCH)
add("LRN within by quads", 'type: "LRN" lrn_param { local_size: 3 alpha: 1 norm_region: WITHIN_CHANNEL }', small=QUADS)
add(
    "LRN within, alpha 0.3",
    'type: "LRN" lrn_param { local_size: 3 alpha: 0.3 norm_region: WITHIN_CHANNEL }',
    medium=IMAGE,
)
add("LRN within, alpha 1", 'type: "LRN" lrn_param { local_size: 3 alpha: 1 norm_region: WITHIN_CHANNEL }', small=ODD)
add("BatchNorm", 'type: "BatchNorm"', small=(4, 3, 12, 17), gpu=MAPS, **BIG, **LOOSE)
add("BatchNorm by quads", 'type: "BatchNorm"', small=QUADS, **LOOSE)
add("BatchNorm of rows", 'type: "BatchNorm"', medium=(9, 4), **LOOSE)
add("BatchNorm of pictures", 'type: "BatchNorm"', timing=PICTURES)
add("BatchNorm of averages", 'type: "BatchNorm" batch_norm_param { use_global_stats: true }', small=ODD, medium=IMAGE)
SCALED = 'type: "BatchNorm" batch_norm_param { scale_bias: true }'
add("BatchNorm of NVCaffe", SCALED, small=QUADS, medium=IMAGE, **LOOSE)
add("BatchNorm of NVCaffe, in TEST", SCALED, small=ODD, medium=IMAGE, phase=1)
NORMALIZED = {"normalized": True, **LOOSE}
add("BatchNorm + Scale", "", medium=IMAGE, **NORMALIZED)
add("BatchNorm + Scale + ReLU", "", medium=IMAGE, relu=True, **NORMALIZED)
add("BatchNorm + Scale + residual", "", medium=SLIVER, residual=True, **NORMALIZED)
add("BatchNorm + Scale + residual from y", "", medium=SLIVER, saved="y0", residual=True, **NORMALIZED)
add("BatchNorm + Scale + residual + ReLU", "", small=ODD, gpu=MAPS, residual=True, relu=True, **NORMALIZED)
add("BatchNorm + Scale + residual + ReLU from y", "", small=QUADS, saved="y0", residual=True, relu=True, **NORMALIZED)
add("MVN", 'type: "MVN"', small=ODD, medium=IMAGE, timing=BATCH, **LOOSE)
add("MVN by quads", 'type: "MVN"', small=(2, 36, 3, 3), **LOOSE)
add("MVN of maps larger than a run", 'type: "MVN"', medium=(1, 70, 17, 19), small=(1, 1, 24, 17))
add("MVN across channels", 'type: "MVN" mvn_param { across_channels: true }', small=ODD, medium=IMAGE, **LOOSE)
add("MVN of rows", 'type: "MVN" mvn_param { across_channels: true }', medium=(4, 37), **LOOSE)
add("MVN, mean only", 'type: "MVN" mvn_param { normalize_variance: false }', small=ODD, medium=IMAGE)
add(
    "MVN, mean only, across channels",
    'type: "MVN" mvn_param { normalize_variance: false across_channels: true }',
    medium=IMAGE,
)
add("MVN of eps 0.1", 'type: "MVN" mvn_param { eps: 0.1 }', medium=SLIVER, tolerance=0.3)  # Caffe's gradient: eps 0


def scale(name: str, settings: str, kind: str = "Scale", **more: Any) -> None:
    add(name, f'type: "{kind}" {kind.lower()}_param {{ {settings} }}', **more)


scale("Scale without bias", "", timing=BATCH)
scale("Scale", "bias_term: true", small=ODD, medium=IMAGE)
scale("Scale by quads", "bias_term: true", small=QUADS)
scale("Scale of C x H", "bias_term: true num_axes: 2", small=ODD)
scale("Scale of C x H x W", "axis: 1 num_axes: -1", **BIG)
scale("Scale by C", "axis: 1", medium=[IMAGE, (6,)])
scale("Scale by N x C", "axis: 0", medium=[IMAGE, IMAGE[:2]], timing=[BATCH, BATCH[:2]])
scale("Scale by N", "axis: 0", medium=[IMAGE, IMAGE[:1]])
scale("Scale by all axes", "axis: 0", medium=[IMAGE, IMAGE])
scale("Scale of one number", "num_axes: 0 bias_term: true", medium=IMAGE)
scale("Scale of N", "axis: 0 num_axes: 1 bias_term: true", medium=IMAGE)
scale("Scale of C x H, from axis 1", "axis: 1 num_axes: 2 bias_term: true", medium=IMAGE)
scale("Scale of N x C x H", "axis: 0 num_axes: 3 bias_term: true", medium=IMAGE)
scale("Scale of H", "axis: 2 num_axes: 1 bias_term: true", medium=IMAGE)
scale("Scale of H x W", "axis: 2 num_axes: 2", medium=IMAGE)
scale("Scale of everything", "axis: 0 num_axes: -1 bias_term: true", medium=IMAGE)
scale("Scale of three axes", "axis: 2 bias_term: true", medium=(3, 4, 5))
scale("Scale of four axes of five", "axis: 1 num_axes: 4 bias_term: true", small=(2, 2, 3, 2, 3), medium=CLIP)
scale("Scale by four axes of five", "axis: 0", medium=[CLIP, CLIP[:4]])
scale("Bias", "", "Bias", **BIG)
scale("Bias by N x C", "axis: 0", "Bias", medium=[IMAGE, (2, 6)])
scale("Bias by N", "axis: 0", "Bias", medium=[IMAGE, IMAGE[:1]])
scale("Bias of C x H x W", "axis: 1 num_axes: -1", "Bias", medium=IMAGE)


def batch_norm(name: str, settings: str, **more: Any) -> None:
    add(name, f'type: "BN" bn_param {{ {settings} }}', **{**LOOSE, **more})


batch_norm("BN of yjxiong", "momentum: 0.8", small=ODD, **BIG)
batch_norm("BN of yjxiong by quads", "slope_filler { value: 1 }", small=QUADS)
batch_norm("BN of yjxiong, frozen", "frozen: true", small=ODD, medium=IMAGE)
batch_norm("BN of rows", "eps: 0.01", medium=(9, 4))
batch_norm("BN of PSPNet", "var_eps: 1e-5 decay: 0.1", small=ODD)
batch_norm("BN of SegNet", "bn_mode: LEARN", small=QUADS, medium=IMAGE)
batch_norm("BN of SegNet, inference", "bn_mode: INFERENCE", small=ODD, medium=IMAGE)


def normalize(name: str, settings: str, **more: Any) -> None:
    add(name, f'type: "Normalize" norm_param {{ {settings} }}', **more)


normalize("Normalize", "", medium=IMAGE)
normalize("Normalize of items", "", small=ODD)
normalize("Normalize of items, by blocks", "channel_shared: false", small=(2, 3, 17, 13))
normalize("Normalize of items by channel", "channel_shared: false", medium=IMAGE)
normalize("Normalize of pixels", "across_spatial: false channel_shared: false", small=ODD, medium=IMAGE, timing=BATCH)
normalize("Normalize of pixels by quads", "across_spatial: false channel_shared: false", small=QUADS)
normalize("Normalize of pixels, one scale", "across_spatial: false eps: 0.01", small=ODD)
normalize("Normalize of rows", "channel_shared: false", medium=(9, 4))
normalize("Normalize of many channels", "across_spatial: false channel_shared: false", medium=(2, 300, 13, 9))

# -- shapes and sizes ----------------------------------------------------------------------------------------------

SHUFFLE = 'type: "ShuffleChannel" shuffle_channel_param {{ group: {} }}'
PERMUTE = 'type: "Permute" permute_param {{ {} }}'
add("Concat", 'type: "Concat"', small=[ODD, QUADS], medium=[IMAGE, (2, 3, 7, 5)], timing=[BATCH, BATCH])
add("Concat by quads", 'type: "Concat"', small=[QUADS, QUADS])
add("Concat of rows", 'type: "Concat" concat_param { axis: 2 }', medium=[IMAGE, (2, 6, 2, 5)])
add("Slice", 'type: "Slice" top: "a" top: "b" slice_param { slice_point: 2 }', medium=IMAGE)
add("Split", 'type: "Split" top: "a" top: "b"', medium=IMAGE)
add("Flatten", 'type: "Flatten"', small=ODD, **BIG)
add("Flatten, a view", 'type: "Flatten"', medium=(3, 5, 1, 1))
add("Reshape", 'type: "Reshape" reshape_param { shape { dim: 2 dim: 5 dim: 3 dim: 3 } }', small=ODD)
add("Reshape of rows", 'type: "Reshape" reshape_param { shape { dim: 2 dim: 3 dim: 7 dim: 10 } }', medium=(2, 210))
add("Reshape of images", 'type: "Reshape" reshape_param { shape { dim: 2 dim: 3 dim: 7 dim: 10 } }', medium=IMAGE)
add("Tile of two", 'type: "Tile" tile_param { tiles: 2 }', small=ODD)
add("Tile by quads", 'type: "Tile" tile_param { tiles: 2 }', small=QUADS)
add("Tile of three", 'type: "Tile" tile_param { tiles: 3 }', medium=IMAGE)
add("Tile", 'type: "Tile" tile_param { tiles: 4 }', timing=BATCH)
add("Tile of images", 'type: "Tile" tile_param { axis: 0 tiles: 2 }', medium=IMAGE)
add("Tile of rows", 'type: "Tile" tile_param { axis: 2 tiles: 65 }', medium=(2, 3, 1, 4))
add("Tile of one number", 'type: "Tile" tile_param { axis: 1 tiles: 40 }', medium=(7, 1))
add(
    "Permute to the back",
    PERMUTE.format("order: 0 order: 2 order: 3 order: 1"),
    small=ODD,
    **BIG,
    formula=lambda x: x.transpose(0, 2, 3, 1),
)
add("Permute of items", PERMUTE.format("order: 1"), small=QUADS, formula=lambda x: x.transpose(1, 0, 2, 3))
add(
    "Permute of five axes",
    PERMUTE.format("order: 0 order: 2 order: 1"),
    medium=(2, 3, 4, 2, 3),
    formula=lambda x: x.transpose(0, 2, 1, 3, 4),
)
add("Permute, a view", PERMUTE.format(""), small=ODD, formula=lambda x: x)
add("Reorg", 'type: "Reorg" reorg_param { stride: 2 }', small=(2, 4, 6, 2), medium=(1, 8, 4, 10))
add("Reorg of one block", 'type: "Reorg" reorg_param { stride: 2 }', small=(2, 4, 2, 2))
add("Reorg, back", 'type: "Reorg" reorg_param { stride: 2 reverse: true }', small=(2, 8, 3, 5))
add("Reorg of YOLO v2", 'type: "Reorg" reorg_param { stride: 2 }', timing=(16, 64, 26, 26))
add(
    "Upsample",
    'type: "Upsample" upsample_param { scale: 2 }',
    small=ODD,
    medium=IMAGE,
    timing=(16, 128, 26, 26),
    formula=lambda x: np.kron(x, np.ones((2, 2))),
)


def places(plane: int) -> Draw:
    """A different place in the plane for each pixel of a map."""

    def draw(rng: np.random.Generator, shape: Shape) -> np.ndarray:
        pixels = shape[2] * shape[3]
        maps = [rng.permutation(plane)[:pixels] for _ in range(shape[0] * shape[1])]
        return np.array(maps, float).reshape(shape)

    return draw


add(
    "Upsample by a mask",
    'type: "Upsample" upsample_param { scale: 2 pad_out_h: true }',
    medium=[(2, 5, 3, 2)] * 2,
    drawn={1: places(5 * 4)},
)
add(
    "Upsample by a mask of quads",
    'type: "Upsample" upsample_param { upsample_h: 5 upsample_w: 9 }',
    medium=[(2, 36, 3, 4)] * 2,
    drawn={1: places(5 * 9)},
)
add("Upsample by 3 of quads", 'type: "Upsample" upsample_param { scale: 3 }', small=QUADS)
add(
    "Axpy",
    'type: "Axpy"',
    small=[ODD[:2], ODD, ODD],
    medium=[IMAGE[:2], IMAGE, IMAGE],
    timing=[BATCH[:2], BATCH, BATCH],
    formula=lambda a, x, b: a[..., None, None] * x + b,
)
add("Axpy of quads", 'type: "Axpy"', small=[(2, 4, 1, 1), QUADS, QUADS])
PRIOR = 'type: "PriorBox" prior_box_param {{ min_size: 3.5 {} }}'
add(
    "PriorBox",
    PRIOR.format("max_size: 8 aspect_ratio: 2 aspect_ratio: 3 variance: [0.1, 0.1, 0.2, 0.2]"),
    small=[ODD, (2, 3, 20, 15)],
    medium=[IMAGE, (2, 3, 300, 200)],
)
add("PriorBox of 8732", PRIOR.format("aspect_ratio: 2 clip: true img_size: 300"), timing=(1, 1, 54, 54))
add("ShuffleChannel", SHUFFLE.format(2), medium=IMAGE, timing=BATCH)
add("ShuffleChannel of quads", SHUFFLE.format(2), small=QUADS, formula=lambda x: x[:, [0, 2, 1, 3]])
add("Parameter", 'type: "Parameter" parameter_param { shape { dim: 2 dim: 3 dim: 5 dim: 3 } }', small=[], medium=[])
add("HDF5Output", 'type: "HDF5Output" hdf5_output_param { file_name: "f" }', medium=[IMAGE, (2,)])
add("Silence", 'type: "Silence"', medium=IMAGE)
add("Crop", 'type: "Crop" crop_param { axis: 2 offset: 1 }', small=[ODD, (2, 3, 3, 2)])
add("Crop by quads", 'type: "Crop" crop_param { axis: 2 offset: 1 }', small=[QUADS, (2, 4, 3, 2)])
add("Crop of images", 'type: "Crop" crop_param { offset: 1 }', medium=[IMAGE, (2, 6, 5, 3)])
add("Crop by 3", 'type: "Crop" crop_param { offset: 3 }', timing=[BATCH, (64, 64, 50, 50)])
add("Interp to 7 x 2", 'type: "Interp" interp_param { height: 7 width: 2 }', small=ODD)
add("Interp by quads", 'type: "Interp" interp_param { height: 3 width: 5 }', small=QUADS)
add("Interp to 9 x 8", 'type: "Interp" interp_param { height: 9 width: 8 }', medium=IMAGE)
add("Interp x 8", 'type: "Interp" interp_param { height: 473 width: 473 }', timing=(4, 21, 60, 60))
add("Interp x 2", 'type: "Interp" interp_param { height: 111 width: 111 }', timing=(16, 64, 56, 56))

# -- rows of a table -----------------------------------------------------------------------------------------------


def embed(name: str, outputs: int, settings: str = "", rows: int = 5, **more: Any) -> None:
    settings = f"input_dim: {rows} num_output: {outputs} {settings}"
    add(name, f'type: "Embed" embed_param {{ {settings} }}', labels=0, classes=rows, **more)


embed("Embed", 3, small=(2, 4))
embed("Embed by quads", 8, "bias_term: false", small=(7,))
embed("Embed into an image", 3, small=(2, 3, 4), medium=(3, 2, 5))
embed("Embed of images", 4, small=(2, 3, 2, 2), medium=(2, 3, 4, 2))
embed("Embed of wide rows", 1030, rows=2, medium=(3,), small=(3,))
embed("Embed of words", 512, rows=20000, timing=(20, 1024))
add("BatchReindex", 'type: "BatchReindex"', labels=1, classes=2, small=[ODD, (5,)], medium=[IMAGE, (3,)])
add("BatchReindex by quads", 'type: "BatchReindex"', labels=1, classes=2, small=[QUADS, (1,)])
add("BatchReindex of rows", 'type: "BatchReindex"', labels=1, classes=4, medium=[(4, 7), (9,)])
add("BatchReindex of a batch", 'type: "BatchReindex"', labels=1, classes=64, timing=[BATCH, (64,)])

# -- recurrent layers ----------------------------------------------------------------------------------------------


def unit(items: int, cells: int) -> list[Shape]:
    """c, gates and cont of an LSTMUnit."""
    return [(1, items, cells), (1, items, 4 * cells), (1, items)]


def coin(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    return rng.integers(0, 2, shape).astype(float)


add("LSTMUnit", 'type: "LSTMUnit"', small=unit(3, 5), medium=unit(2, 21), timing=unit(256, 4096), drawn={2: coin})
add("LSTMUnit of any cont", 'type: "LSTMUnit"', medium=unit(4, 3))
STATE = 'input_param { shape { dim: 1 dim: 3 dim: 5 } } param { name: "s" }'
add("StateRead", f'type: "StateRead" {STATE}', small=[], medium=[])
add("StateWrite", 'type: "StateWrite" param { name: "s" }', small=[(1, 3, 5)], medium=[(1, 3, 5)])
add("TimeSlice", 'type: "TimeSlice" top: "a" top: "b" slice_param { axis: 0 slice_point: 2 }', medium=(5, 3, 7))
add("Exposed", 'type: "Exposed"', small=[(1, 3, 5)], medium=[(1, 3, 5)])

# -- reductions ----------------------------------------------------------------------------------------------------


def reduction(name: str, settings: str, **more: Any) -> None:
    add(name, f'type: "Reduction" reduction_param {{ {settings} }}', **more)


for _operation in ("SUM", "MEAN", "ASUM", "SUMSQ"):
    for _axis in (0, 1, 2, 3):
        reduction(
            f"Reduction {_operation} from axis {_axis}",
            f"operation: {_operation} axis: {_axis} coeff: 0.7",
            medium=IMAGE,
        )
reduction("Reduction of long rows", "axis: 1", medium=(3, 40001))
reduction("Reduction SUM", "axis: 1", small=ODD)
reduction("Reduction ASUM", "operation: ASUM axis: 2", small=ODD)
reduction("Reduction SUMSQ", "operation: SUMSQ", small=ODD)
reduction("Reduction of five axes to four", "axis: 4", small=(2, 3, 2, 2, 3), medium=CLIP)
reduction("Reduction of items", "operation: SUMSQ axis: 1", timing=BATCH)
reduction("Reduction of pixels", "axis: 2", timing=BATCH)


def argmax(name: str, settings: str, **more: Any) -> None:
    add(name, f'type: "ArgMax" argmax_param {{ {settings} }}', **more)


argmax("ArgMax", "", medium=(5, 40))
argmax("ArgMax 2 of items", "top_k: 2", small=ODD)
argmax("ArgMax 3 of channels", "axis: 1 top_k: 3", medium=IMAGE)
argmax("ArgMax 7 of rows", "axis: 2 top_k: 7 out_max_val: true", medium=IMAGE)
argmax("ArgMax 4 of items, with values", "top_k: 4 out_max_val: true", medium=IMAGE)
argmax("ArgMax 1 of items", "top_k: 1", medium=IMAGE)
argmax("ArgMax of 21", "axis: 1", timing=PIXELS)
argmax("ArgMax 5 of 1000", "top_k: 5", timing=ROWS)

# -- scores and losses ---------------------------------------------------------------------------------------------


def labelled(name: str, text: str, classes: int = 2, **more: Any) -> None:
    """A loss or an accuracy whose second bottom holds classes."""
    add(name, text, labels=1, classes=classes, **more)


LOSS = 'type: "SoftmaxWithLoss"'
add("Softmax", 'type: "Softmax"', small=(9, 35), medium=IMAGE)
add("Softmax of planes", 'type: "Softmax"', small=(2, 3, 5))
add("Softmax of 1000", 'type: "Softmax"', timing=ROWS)
add("Softmax of 21", 'type: "Softmax"', timing=PIXELS)
labelled("SoftmaxWithLoss", LOSS, 4, medium=[(5, 4), (5,)])
labelled("SoftmaxWithLoss and its softmax", f'{LOSS} top: "l" top: "p"', 35, small=[(9, 35), (9,)])
labelled("SoftmaxWithLoss of planes", f"{LOSS} loss_param {{ ignore_label: 1 }}", 3, small=[(2, 3, 5), (2, 5)])
labelled("SoftmaxWithLoss of images", f"{LOSS} loss_param {{ ignore_label: 1 }}", 6, medium=[IMAGE, (2, 1, 7, 5)])
labelled(
    "SoftmaxWithLoss, labels in another order", f"{LOSS} softmax_param {{ axis: 2 }}", 7, medium=[IMAGE, (2, 6, 5)]
)
labelled("SoftmaxWithLoss of 1000", LOSS, 1000, timing=[ROWS, ROWS[:1]])
labelled("SoftmaxWithLoss of 21", LOSS, 21, timing=[PIXELS, (4, 1, 480, 480)])
labelled("SoftmaxWithLoss of 2", LOSS, 2, timing=[(8, 2, 480, 480), (8, 1, 480, 480)])
GAIN = 'type: "InfogainLoss"'
labelled("InfogainLoss", GAIN, 4, medium=[(5, 4), (5,), (4, 4)])
labelled("InfogainLoss and its softmax", f'{GAIN} top: "l" top: "p"', 35, small=[(9, 35), (9,), (1, 1, 35, 35)])
labelled("InfogainLoss of planes", f"{GAIN} loss_param {{ ignore_label: 1 }}", 3, small=[(2, 3, 5), (2, 5), (3, 3)])
labelled(
    "InfogainLoss of images",
    f"{GAIN} loss_param {{ ignore_label: 1 normalization: FULL }}",
    6,
    medium=[IMAGE, (2, 1, 7, 5), (6, 6)],
)
labelled(
    "InfogainLoss, labels in another order",
    f"{GAIN} infogain_loss_param {{ axis: 2 }}",
    7,
    medium=[IMAGE, (2, 6, 5), (7, 7)],
)
labelled("Accuracy", 'type: "Accuracy" top: "a" top: "c"', 35, small=[(9, 35), (9,)])
labelled("Accuracy of planes", 'type: "Accuracy"', 3, small=[(2, 3, 5), (2, 5)])
labelled("Accuracy, top 2", 'type: "Accuracy" accuracy_param { top_k: 2 }', 5, medium=[(9, 5), (9,)])
labelled(
    "Accuracy by class",
    'type: "Accuracy" top: "a" top: "c" accuracy_param { ignore_label: 1 }',
    6,
    medium=[IMAGE, (2, 1, 7, 5)],
)
labelled(
    "Accuracy along columns",
    'type: "Accuracy" top: "a" top: "c" accuracy_param { axis: 3 }',
    5,
    medium=[IMAGE, (2, 6, 7)],
)
labelled("Accuracy of 1000", 'type: "Accuracy"', 1000, timing=[ROWS, ROWS[:1]])
labelled("Accuracy of 21", 'type: "Accuracy"', 21, timing=[PIXELS, (4, 1, 480, 480)])
add("EuclideanLoss", 'type: "EuclideanLoss"', small=[ODD, ODD], medium=[(4, 6), (4, 6)], timing=[BATCH, BATCH])
add("EuclideanLoss, images and rows", 'type: "EuclideanLoss"', medium=[IMAGE, (2, 210)])
add("EuclideanLoss, two orders", 'type: "EuclideanLoss"', medium=[IMAGE, (2, 5, 6, 7)])
labelled(
    "SigmoidCrossEntropyLoss",
    'type: "SigmoidCrossEntropyLoss"',
    small=[ODD, ODD],
    medium=[IMAGE, IMAGE],
    timing=[BATCH, BATCH],
)
labelled("SigmoidCrossEntropyLoss, rows and images", 'type: "SigmoidCrossEntropyLoss"', medium=[(2, 210), IMAGE])
labelled("HingeLoss", 'type: "HingeLoss"', 40, medium=[(5, 40), (5,)])
labelled("HingeLoss of three", 'type: "HingeLoss"', 3, small=[(5, 3), (5,)])
labelled("HingeLoss of 1000", 'type: "HingeLoss"', 1000, timing=[ROWS, ROWS[:1]])
labelled("HingeLoss of images", 'type: "HingeLoss" hinge_loss_param { norm: L2 }', 210, medium=[IMAGE, (2,)])
labelled("MultinomialLogisticLoss", 'type: "MultinomialLogisticLoss"', 210, positive=True, medium=[IMAGE, (2,)])
labelled("MultinomialLogisticLoss of three", 'type: "MultinomialLogisticLoss"', 3, positive=True, small=[(5, 3), (5,)])
add("SmoothL1Loss", 'type: "SmoothL1Loss"', small=[ODD, ODD], medium=[(4, 6), (4, 6)], timing=[BATCH, BATCH])
add(
    "SmoothL1Loss, weighted",
    'type: "SmoothL1Loss" smooth_l1_loss_param { sigma: 1.5 }',
    small=[ODD] * 4,
    medium=[IMAGE] * 4,
)
add("SmoothL1Loss, weighted inside", 'type: "SmoothL1Loss" smooth_l1_loss_param { sigma: 3 }', medium=[(5, 8)] * 3)
CONTRASTIVE = {"labels": 2, "tolerance": 3e-4}  # Caffe divides by d + 1e-4 where the derivative has d
add(
    "ContrastiveLoss",
    'type: "ContrastiveLoss"',
    small=[(9, 35), (9, 35), (9,)],
    timing=[ROWS, ROWS, ROWS[:1]],
    **CONTRASTIVE,
)
add(
    "ContrastiveLoss of margin 6",
    'type: "ContrastiveLoss" contrastive_loss_param { margin: 6 }',
    medium=[(8, 20), (8, 20), (8,)],
    **CONTRASTIVE,
)
add(
    "ContrastiveLoss, legacy",
    'type: "ContrastiveLoss" contrastive_loss_param { margin: 36 legacy_version: true }',
    medium=[(8, 20), (8, 20), (8,)],
    **CONTRASTIVE,
)

# -- ops that no layer makes ---------------------------------------------------------------------------------------

SETTINGS: StepContext = {
    "momentum": 0.9,
    "momentum2": 0.999,
    "rms_decay": 0.98,
    "delta": 1e-3,
    "weight_decay": 5e-3,
    "regularization": "L2",
    "clip": -1.0,
    "iter_size": 1,
    "rate": 0.1,
    "iteration": 4,
}
# optimizer state by rule
STATES = {"SGD": 1, "Nesterov": 1, "AdaGrad": 1, "RMSProp": 1, "AdaDelta": 2, "Adam": 2, "AdamW": 2}
WEIGHTS, SCALAR = Tensor((5, 7)), Tensor(())


def state(rule: str) -> dict[str, Tensor]:
    return {"w0": WEIGHTS, **{f"h{i}": WEIGHTS for i in range(STATES[rule])}}


def update(rule: str) -> ops.Update:
    return ops.Update(rule, "ip.w", WEIGHTS, lr_mult=2.0, decay_mult=0.5)


PRODUCT = ops.InnerProduct(Tensor((4, 7)), Tensor((4, 5)), rows=4, inner=7, outputs=5, bias=True)
RECORDS = {
    **{rule: RecordCase(update(rule), "update", {"dw0": WEIGHTS}, updates=state(rule), context=SETTINGS)
       for rule in STATES},
    "SGD with clipping": RecordCase(update("SGD"), "update", {"dw0": WEIGHTS, "norm": SCALAR}, updates=state("SGD"),
                                    context={**SETTINGS, "clip": 0.5}),
    "SGD with L1 decay": RecordCase(update("SGD"), "update", {"dw0": WEIGHTS}, updates=state("SGD"),
                                    context={**SETTINGS, "regularization": "L1", "iter_size": 3}),
    "SGD with a loss scale": RecordCase(
        replace(update("SGD"), scaled=True), "update", {"dw0": WEIGHTS, "norm": SCALAR},
        updates=state("SGD"), context={**SETTINGS, "loss_scale": 1024.0}),
    "Fill with a loss scale": RecordCase(ops.Fill(0.3, scaled=True), "fill", writes={"y0": SCALAR},
                                         context={"loss_scale": 1024.0}),
    "Fill with 0": RecordCase(ops.Fill(0.0), "fill", writes={"y0": WEIGHTS}),
    "Fill with 0.3": RecordCase(ops.Fill(0.3), "fill", writes={"y0": SCALAR}),
    "GradientNorm": RecordCase(ops.GradientNorm(), "forward", {"x0": WEIGHTS, "x1": Tensor((3,)), "x2": Tensor(())},
                               {"y0": SCALAR}),
    **{f"InnerProductUpdate by {rule}": RecordCase(
        ops.InnerProductUpdate(PRODUCT, update(rule)), "backward_update", {"x0": PRODUCT.x, "dy0": PRODUCT.y},
        {"dw1": Tensor((5,))}, state(rule), SETTINGS) for rule in STATES},
    "Feed": RecordCase(ops.Feed("data", 2), "forward", writes={"y0": Tensor(TINY), "y1": Tensor((2,))},
                       context={"batch": {"data": [np.arange(60.0).reshape(TINY), np.array([3.0, 4.0])]}}),
    "CopyOut": RecordCase(ops.CopyOut("score"), "forward", {"x0": Tensor(TINY)}, context={"results": {}}),
}  # fmt: skip
