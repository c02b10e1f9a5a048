"""Convolutions and inner products."""

from dataclasses import replace
from typing import Any

from layermem.layers.images import image_shape
from layermem.ops import Conv, ConvProblem
from tests.cases.base import CASES, CLIP, IMAGE, SLIVER, TINY, add, by_shape, cases_of
from tests.layers.harness import layer_of
from tests.op_case import OpCase, Shape

Edge = tuple[str, int, Shape]  # settings besides num_output, num_output, shape of x

CONV_EDGES: dict[str, Edge] = {
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

# The same, for tiles of packed 16-bit operands, whose channels are multiples of eight.
OCTETS: dict[str, Edge] = {
    "groups": ("kernel_size: 3 pad: 1 group: 2", 48, (2, 16, 7, 5)),
    "dilated by the stride": ("kernel_size: 3 pad: 2 dilation: 2 stride: 2", 8, (1, 24, 9, 8)),
    "stride beyond the kernel": ("kernel_h: 2 kernel_w: 1 stride: 3", 8, (1, 8, 13, 12)),
    "long sum": ("kernel_size: 1", 24, (1, 504, 2, 3)),
    "more rows and columns than a tile has": ("kernel_size: 3 pad: 1", 136, (3, 136, 11, 9)),
    "parts of the weight gradient": ("kernel_size: 3 pad: 1", 8, (6, 8, 13, 13)),
}

# The same, for warpgroups, whose channels are multiples of 32.
PACKED: dict[str, Edge] = {
    "several tiles, more stages than the ring has": ("kernel_size: 1", 320, (3, 288, 11, 9)),  # filled up with zeros
    "taps and phases": ("kernel_size: 3 pad: 1 stride: 2", 64, (2, 32, 9, 8)),
    "in two groups": ("kernel_size: 3 pad: 1 group: 2", 128, (2, 64, 7, 5)),
    "dilated by the stride": ("kernel_size: 3 pad: 2 dilation: 2 stride: 2", 64, (1, 32, 9, 8)),
    "stride beyond the kernel": ("kernel_h: 2 kernel_w: 1 stride: 3", 128, (1, 32, 13, 12)),
}

# Batches of 12 images for slices.
SLICED_DEPTHWISE: dict[str, Edge] = {
    "3x3": ("kernel_size: 3 pad: 1 group: 8", 8, (12, 8, 5, 6)),
    "5x5/2 of two blocks": ("kernel_size: 5 pad: 2 stride: 2 group: 40", 40, (12, 40, 6, 5)),
    "any": ("kernel_h: 2 kernel_w: 5 dilation: 1 group: 3", 6, (12, 3, 5, 9)),
}
# Images and rows that a part of these gradients covers; a deconvolution has the same kernels, with x and dy exchanged.
DEPTHWISE_PARTS = [(1, 1), (1, 9), (2, 2), (5, 9), (5, 2), (7, 1), (12, 9), (12, 3)]
DECONVOLUTION_PARTS = [(1, 1), (5, 2), (12, 3)]

# The same, for groups of one channel.
DEPTHWISE = {
    "3x3": ("kernel_size: 3 pad: 1 group: 36", 36, (2, 36, 9, 7)),
    "3x3, one pixel": ("kernel_size: 3 pad: 1 group: 8", 8, (3, 8, 1, 1)),
    "3x3 without pad": ("kernel_size: 3 group: 4", 4, (2, 4, 6, 11)),
    "3x3 in a wide pad": ("kernel_size: 3 pad: 4 group: 4", 4, (1, 4, 3, 2)),
    "3x3 of many strips": ("kernel_size: 3 pad: 1 group: 4", 4, (1, 4, 21, 34)),
    "3x3/2": ("kernel_size: 3 pad: 1 stride: 2 group: 40", 40, (2, 40, 8, 9)),
    "3x3/2 without pad": ("kernel_size: 3 stride: 2 group: 4", 4, (2, 4, 9, 6)),
    "3x3/2 in a wide pad": ("kernel_size: 3 pad: 5 stride: 2 group: 4", 4, (1, 4, 4, 3)),
    "5x5": ("kernel_size: 5 pad: 2 group: 12", 12, (2, 12, 7, 9)),
    "5x5 in a narrow pad": ("kernel_size: 5 pad_h: 0 pad_w: 1 group: 4", 4, (1, 4, 8, 13)),
    "5x5/2": ("kernel_size: 5 pad: 2 stride: 2 group: 8", 8, (2, 8, 9, 10)),
    "5x5/2 in an odd pad": ("kernel_size: 5 pad: 3 stride: 2 group: 36", 36, (1, 36, 5, 6)),
    "one by one": ("kernel_size: 1 group: 8", 8, (2, 8, 5, 3)),
    "strides of two kinds": ("kernel_size: 3 pad: 1 stride_h: 2 stride_w: 1 group: 8", 8, (2, 8, 7, 6)),
    "stride beyond the kernel": ("kernel_h: 2 kernel_w: 1 stride: 3 group: 8", 8, (1, 8, 10, 9)),
    "dilated": ("kernel_size: 3 pad: 2 dilation: 2 group: 8", 8, (2, 8, 9, 7)),
    "dilated by the stride": ("kernel_size: 3 pad: 2 dilation: 2 stride: 2 group: 4", 4, (1, 4, 9, 8)),
    "dilation prime to the stride": ("kernel_size: 3 pad: 3 dilation: 3 stride: 2 group: 4", 4, (1, 4, 11, 9)),
    "taps of several blocks": ("kernel_h: 2 kernel_w: 9 pad: 1 group: 4", 4, (1, 4, 4, 12)),
    "odd channels": ("kernel_size: 3 pad: 1 group: 35", 35, (2, 35, 5, 6)),
    "two outputs a group": ("kernel_size: 3 pad: 1 stride: 2 group: 20", 40, (2, 20, 7, 5)),
    "four outputs a group": ("kernel_size: 2 dilation: 2 group: 10", 40, (1, 10, 6, 5)),
}

# The same, for groups of a few channels, by their number and the stride.
GROUPED = {
    "4": ("kernel_size: 3 group: 18 pad: 1", 72, (2, 72, 3, 15)),  # three blocks, two warps; strips of 7, 7 and 1
    "4/2": ("kernel_size: 3 group: 3 pad: 1 stride: 2", 12, (1, 12, 9, 10)),
    "4/2 in a wide pad": ("kernel_size: 3 group: 2 pad: 4 stride: 2", 8, (1, 8, 4, 3)),
    "8": ("kernel_size: 3 group: 5 pad_h: 0 pad_w: 2", 40, (2, 40, 5, 8)),
    "8/2": ("kernel_size: 3 group: 2 stride: 2", 16, (1, 16, 6, 9)),
    "16": ("kernel_size: 3 group: 3 pad: 1", 48, (1, 48, 3, 9)),
    "16/2": ("kernel_size: 3 group: 2 pad: 1 stride: 2", 32, (1, 32, 5, 4)),
}

# The same, for kernels of the cpu backend: blocks of channels, tiles of Winograd's algorithm, parts of gradients.
CPU_EDGES: dict[str, Edge] = {
    "one by one": CONV_EDGES["one by one"],
    "one by one, strided": ("kernel_size: 1 stride: 2", 130, (1, 72, 13, 7)),
    "one by one, cut along both channels": ("kernel_size: 1", 260, (2, 600, 28, 28)),
    "strided, cut along input channels": ("kernel_size: 3 stride: 2 pad: 1", 70, (1, 530, 9, 9)),
    "three by three": ("kernel_size: 3 pad: 1", 72, (2, 20, 13, 13)),
    "first layer": ("kernel_size: 7 stride: 2 pad: 3", 36, (2, 3, 23, 29)),
    "first layer without pad": ("kernel_size: 11 stride: 4", 20, (1, 3, 27, 27)),
    "one channel": ("kernel_size: 5", 4, (3, 1, 13, 13)),
    "four channels, wide pad": ("kernel_size: 3 pad: 3", 3, (1, 4, 7, 7)),
    "width one": ("kernel_h: 3 kernel_w: 1 pad_h: 1 pad_w: 0", 20, (2, 36, 13, 1)),
    "stride three": ("kernel_size: 3 stride_h: 3 stride_w: 2 pad_h: 1 pad_w: 2", 36, (2, 20, 13, 13)),
    "stride beyond the kernel": ("kernel_h: 2 kernel_w: 1 stride: 3", 4, (1, 4, 13, 13)),
    "dilated": ("kernel_size: 3 pad: 2 dilation: 2", 20, (2, 36, 13, 13)),
    "dilated, few channels, strided": (
        "kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 3 pad_h: 2 pad_w: 1 dilation: 2 dilation: 3",
        20,
        (1, 3, 17, 13),
    ),
    "two groups": ("kernel_size: 3 pad: 1 group: 2", 36, (2, 72, 7, 13)),
    "groups of one": ("kernel_size: 3 stride_h: 2 stride_w: 1 pad: 1 group: 36", 36, (2, 36, 13, 7)),
    "groups of one, no stride": ("kernel_size: 3 pad: 1 group: 20", 20, (2, 20, 9, 14)),
    "groups of one, dilated": (
        "kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 1 pad_h: 2 pad_w: 1 dilation: 2 group: 72",
        72,
        (1, 72, 13, 13),
    ),
    "groups of one, wide pad": ("kernel_size: 2 pad: 2 group: 5", 5, (1, 5, 4, 4)),
    "upsampling by groups of one": ("kernel_size: 8 stride: 4 pad: 2 group: 21", 21, (1, 21, 33, 29)),
    "more outputs than inputs in a group": ("kernel_size: 3 group: 4", 12, (1, 4, 7, 7)),
    "long reduction": ("kernel_size: 1", 20, (1, 500, 4, 3)),
    "long reduction with taps": ("kernel_size: 3 pad: 1", 36, (1, 400, 5, 5)),
    "many pixels": ("kernel_size: 3 pad: 1", 20, (4, 4, 40, 40)),
    "three by three, many channels": ("kernel_size: 3 pad: 1", 72, (2, 36, 14, 14)),
    "three by three, odd sizes": ("kernel_size: 3 pad: 1", 36, (4, 72, 9, 7)),
    "three by three, no pad": ("kernel_size: 3", 33, (3, 40, 10, 13)),
    "three by three, wide pad": ("kernel_size: 3 pad: 2", 50, (3, 32, 7, 8)),
    "three by three, deep": ("kernel_size: 3 pad: 1", 40, (1, 400, 17, 16)),
    "three by three, blocks of tiles": ("kernel_size: 3 pad: 1", 100, (3, 36, 60, 60)),
    "three by three, wide groups": ("kernel_size: 3 pad: 1 group: 2", 80, (3, 72, 14, 9)),
    "tiles of four by four, odd sizes": ("kernel_size: 3 pad: 1", 40, (4, 36, 15, 14)),
    "tiles of four by four, no pad, wide groups": ("kernel_size: 3 group: 2", 80, (6, 72, 14, 13)),
    "tiles of four by four, wide pad": ("kernel_size: 3 pad: 2", 50, (3, 33, 13, 14)),
    "tiles of four by four, weights in parts": ("kernel_size: 3 pad: 1", 208, (3, 144, 14, 14)),
    "one pixel": CONV_EDGES["one pixel"],
}

# precision -> bound of forward and data gradient, of the weight gradient's long sums, and a lower bound of the error
PRECISION_BOUNDS = {"fp32x3": (2e-6, 1e-5, 0), "tf32": (5e-4, 5e-4, 1e-4), "bf16": (4e-3, 4e-3, 1e-3)}

# For each tile of implicit GEMM: channels and outputs, both read four at a time, neither, or outputs alone; on tensor
# cores, images in one stage of channels and in two, with a precision.
TILED_CHANNELS = [(4, 72), (3, 21), (3, 72)]
TILED_IMAGES: list[tuple[Shape, str]] = [
    *(((3, 4, 9, 8), each) for each in PRECISION_BOUNDS),
    *(((2, 40, 18, 18), each) for each in ("tf32", "bf16")),
]
LONG_IMAGES: list[Shape] = [(1, 4, 1, 2**14 - 3), (1, 4, 2**14 - 2, 1)]  # 2^14 - 1 padded pixels a side, and 2^14

# Settings and a bottom, for checks of layers: other numbers of spatial axes than two, and other axes of channels.
RANKS: list[tuple[str, Shape]] = [
    ("kernel_size: 3 pad: 1 stride: 2", (2, 4, 9)),
    (
        "kernel_size: 3 kernel_size: 2 kernel_size: 3 pad: 1 pad: 0 pad: 1 stride: 1 stride: 2 stride: 1",
        (2, 4, 3, 5, 2),
    ),
    ("kernel_size: 2 dilation: 2 dilation: 1 dilation: 1 force_nd_im2col: true", (1, 4, 4, 3, 3)),
    ("kernel_size: 2 axis: 2", (2, 3, 4, 5)),
    ("kernel_size: 2 axis: -3", (2, 3, 4, 3, 5)),
    ("kernel_size: 2 pad: 1 axis: 0", (4, 3, 2, 3)),
    ("axis: 3", (2, 3, 2, 4)),
    ("kernel_size: 2 kernel_size: 1 kernel_size: 2 kernel_size: 1 stride: 2", (1, 4, 3, 2, 3, 2)),
]

# Of Winograd's algorithm on the cpu: images, their size and channels, in chunks; channels of batches of few tiles.
CHUNKED = [(1, (60, 64), 700), (4, (14, 14), 288)]
FEW_TILES = [(192, 384), (201, 390)]


def conv_text(outputs: int, settings: str, kind: str = "Convolution", more: str = "") -> str:
    return f'type: "{kind}" {more} convolution_param {{ num_output: {outputs} {settings} }}'


def edge_layer(edge: Edge, kind: str = "Convolution", more: str = "") -> tuple[str, Shape]:
    """The text of a layer, and the shape of its bottom; a Deconvolution has the shapes of bottom and top swapped."""
    settings, outputs, shape = edge
    if kind == "Deconvolution":
        outputs, shape = shape[1], (shape[0], outputs, *shape[2:])
    return conv_text(outputs, f"{settings} {more}", kind), shape


def conv_case(edge: Edge, name: str = "a convolution") -> OpCase:
    settings, outputs, shape = edge
    return OpCase(name, conv_text(outputs, settings), {"small": [shape]})


def edge_problem(edge: Edge) -> ConvProblem:
    text, shape = edge_layer(edge)
    record = layer_of(text, shape).record
    assert isinstance(record, Conv)
    return record.problem


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


CLIPS = (2, 4, 4, 3, 3)
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


InnerProduct = cases_of("InnerProduct", "inner_product_param")
InnerProduct("InnerProduct", "num_output: 5", small=(6, 7))
InnerProduct("InnerProduct by quads", "num_output: 12", small=(6, 8))
InnerProduct("InnerProduct + ReLU", "num_output: 5", small=(6, 7), relu=True)
InnerProduct("InnerProduct by octets + ReLU", "num_output: 16", small=(6, 24), relu=True)
InnerProduct("InnerProduct in parts", "num_output: 9", small=(3, 512))
InnerProduct("InnerProduct in parts + ReLU", "num_output: 16", small=(3, 512), relu=True)
InnerProduct("InnerProduct with a gradient in parts", "num_output: 512", small=(3, 12))
InnerProduct("InnerProduct of rows", "num_output: 9", medium=(5, 11))
InnerProduct("InnerProduct of images", "num_output: 9", medium=IMAGE)
InnerProduct("InnerProduct from axis 2", "num_output: 9 axis: 2", medium=IMAGE)
InnerProduct("InnerProduct from axis 3", "num_output: 9 axis: 3", medium=IMAGE)
InnerProduct("InnerProduct into an image", "num_output: 9 axis: 3", medium=(4, 6, 1, 1))
InnerProduct("InnerProduct from five axes", "num_output: 9 axis: 3", medium=(2, 3, 4, 5, 6))
InnerProduct("InnerProduct of images, transposed", "num_output: 9 transpose: true bias_term: false", medium=IMAGE)
InnerProduct("InnerProduct, transposed", "num_output: 9 transpose: true", medium=(5, 11))
for _outputs, _shape in ((10, (5, 37)), (20, (66, 128)), (12, (3, 8, 5, 3)), (4, (700, 12)), (5, (2, 3, 1, 1))):
    by_shape(InnerProduct, "InnerProduct", f"num_output: {_outputs}", [_shape])
    by_shape(InnerProduct, "InnerProduct, transposed,", f"num_output: {_outputs} transpose: true", [_shape])
for _axis in (0, 2, 3):
    by_shape(InnerProduct, f"InnerProduct from axis {_axis}", f"num_output: 6 axis: {_axis}", [(2, 3, 5, 4)])

conv("Convolution 2x2", 3, "kernel_size: 2 pad: 1", medium=SLIVER)
InnerProduct("InnerProduct without bias", "num_output: 7 bias_term: false", medium=SLIVER)


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
