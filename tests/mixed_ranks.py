"""Layers over operands of one to six axes, in every combination of ranks that they take.

Blobs of four axes are stored channels-last and others in Caffe's order, so an op whose operands have different numbers
of axes has to handle two orders.  Sizes are chosen so that a wrong order shows.

    KINDS               names of families of layers
    mixed(kind, rank)   layers of a family whose first operand has `rank` axes
    FIXED               types of layers in no family: their operands have fixed numbers of axes, as in tests/cases,
                        or they compute nothing
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from math import prod

import numpy as np

from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.layers import LAYERS, Layer
from layermem.layers.activation import Activation
from layermem.layers.data import FEEDS
from layermem.proto.read import read_net_text
from tests.layers.harness import TRAIN, roles

Shape = tuple[int, ...]
SIZES = (2, 3, 2, 4, 3, 2)
RANKS = range(1, len(SIZES) + 1)
FIXED = {
    "Axpy", "BN", "ConvolutionDepthwise", "DepthwiseConvolution", "DetectionEvaluate", "DetectionOutput", "Exposed",
    "Filter", "HDF5Output", "Interp", "LRN", "LSTMUnit", "MVN", "MultiBoxLoss", "Normalize", "PSROIPooling", "Pooling",
    "PriorBox", "Python", "ROIPooling", "RegionLoss", "Reorg", "Silence", "StateRead", "StateWrite", "Upsample",
    "YoloDetectionOutput", "Yolov3", "Yolov3DetectionOutput",
}  # fmt: skip


@dataclass(frozen=True)
class Mixed:
    """A layer in prototxt, its bottoms, and the range of bottoms that hold indices."""

    text: str
    shapes: Sequence[Shape]
    indices: dict[int, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.text} over {' and '.join('x'.join(map(str, shape)) or 'a scalar' for shape in self.shapes)}"

    def layers(self) -> list[Layer]:
        """The layer, or its parts; empty if layermem refuses it."""
        names = roles("x", len(self.shapes))
        shapes = (" ".join(f"dim: {size}" for size in shape) for shape in self.shapes)
        inputs = (
            f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {dims} }} }} }}'
            for name, dims in zip(names, shapes, strict=True)
        )
        bottoms = " ".join(f'bottom: "{name}"' for name in names)
        top = "" if "top:" in self.text else 'top: "y"'
        try:
            net = Net(read_net_text(f'{" ".join(inputs)} layer {{ name: "it" {self.text} {bottoms} {top} }}'), TRAIN)
        except InputError:
            return []
        return [node.layer for node in net.nodes if node.layer.type not in FEEDS]

    def values(self, layer: Layer) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Bottoms and parameters of one of these; no sum of them is near zero."""
        rng = np.random.default_rng(zlib.crc32(str(self).encode()))
        xs = [rng.random(x.shape) + 0.2 for x in layer.bottoms]
        for i, count in self.indices.items():
            xs[i] = rng.integers(0, count, layer.bottoms[i].shape).astype(float)
        return xs, [rng.random(p.tensor.shape) + 0.5 for p in layer.params]


Family = Callable[[Shape], Iterator[Mixed]]
FAMILIES: dict[str, Family] = {}


def family(function: Family) -> Family:
    FAMILIES[function.__name__] = function
    return function


def mixed(kind: str, rank: int) -> list[tuple[Mixed, Layer]]:
    """The layers of the family that layermem takes."""
    return [(each, layer) for each in FAMILIES[kind](SIZES[:rank]) for layer in each.layers()]


def axes(shape: Shape) -> range:
    return range(len(shape))


def shapes_of(count: int) -> set[Shape]:
    """Shapes of `count` elements: for each number of axes, two with the most sizes above one."""
    found: set[Shape] = set()
    for rank in RANKS:
        factors = sorted(factored(count, rank), key=lambda shape: (shape.count(1), shape))
        found.update((*factors[:1], *factors[-1:]))
    return found


def factored(count: int, rank: int) -> Iterator[Shape]:
    """All shapes with this number of elements and axes."""
    if rank == 1:
        yield (count,)
        return
    for first in (size for size in range(1, count + 1) if count % size == 0):
        yield from ((first, *rest) for rest in factored(count // first, rank - 1))


@family
def scale(x: Shape) -> Iterator[Mixed]:
    """A factor, with and without a bias, and a bias: a parameter or a second bottom."""
    for first in axes(x):
        for count in range(len(x) - first + 1):
            span = f"axis: {first} num_axes: {count}"
            yield Mixed(f'type: "Scale" scale_param {{ {span} bias_term: true }}', [x])
            yield Mixed(f'type: "Bias" bias_param {{ {span} }}', [x])
            operand = x[first : first + count]
            yield Mixed(f'type: "Scale" scale_param {{ axis: {first} }}', [x, operand])
            yield Mixed(f'type: "Bias" bias_param {{ axis: {first} }}', [x, operand])


@family
def reduction(x: Shape) -> Iterator[Mixed]:
    for axis in axes(x):
        for operation in ("SUM", "MEAN", "ASUM", "SUMSQ"):
            yield Mixed(f'type: "Reduction" reduction_param {{ operation: {operation} axis: {axis} }}', [x])


@family
def arg_max(x: Shape) -> Iterator[Mixed]:
    for settings in ("", "top_k: 2", "top_k: 2 out_max_val: true"):
        yield Mixed(f'type: "ArgMax" argmax_param {{ {settings} }}', [x])
        for axis in axes(x):
            yield Mixed(f'type: "ArgMax" argmax_param {{ axis: {axis} {settings} }}', [x])


SETTINGS = {
    "Clip": "clip_param { min: 0.3 max: 0.9 }",
    "Split": 'top: "a" top: "b"',
    "ShuffleChannel": "shuffle_channel_param { group: 3 }",
}


@family
def elementwise(x: Shape) -> Iterator[Mixed]:
    for operation in ("SUM", "PROD", "MAX"):
        yield Mixed(f'type: "Eltwise" eltwise_param {{ operation: {operation} }}', [x, x])
    activations = sorted(name for name, layer in LAYERS.items() if issubclass(layer, Activation))
    for kind in ("BatchNorm", "Split", "Dropout", "ShuffleChannel", *activations):
        yield Mixed(f'type: "{kind}" {SETTINGS.get(kind, "")}', [x])
    yield Mixed('type: "PReLU" prelu_param { channel_shared: true }', [x])


@family
def softmax(x: Shape) -> Iterator[Mixed]:
    for axis in axes(x):
        yield Mixed(f'type: "Softmax" softmax_param {{ axis: {axis} }}', [x])


@family
def labelled(x: Shape) -> Iterator[Mixed]:
    """Scores along an axis, with labels of any number of axes."""
    for axis in axes(x):
        positions = prod(x) // x[axis]
        labels = {x[:axis] + x[axis + 1 :], (*x[:axis], 1, *x[axis + 1 :]), *shapes_of(positions)}
        for label in sorted(labels):
            for text in (
                f'type: "SoftmaxWithLoss" softmax_param {{ axis: {axis} }} top: "loss" top: "share"',
                f'type: "Accuracy" accuracy_param {{ axis: {axis} }}',
            ):
                yield Mixed(text, [x, label], {1: x[axis]})
            infogain = f'type: "InfogainLoss" infogain_loss_param {{ axis: {axis} }}'
            yield Mixed(infogain, [x, label, (1, 1, x[axis], x[axis])], {1: x[axis]})


@family
def compared(x: Shape) -> Iterator[Mixed]:
    """Losses over two blobs of one count, whatever their shapes."""
    items, each = x[0], prod(x[1:])
    for other in sorted({x, *((items, *shape) for shape in shapes_of(each)), *shapes_of(items * each)}):
        for kind in ("EuclideanLoss", "SmoothL1Loss"):
            yield Mixed(f'type: "{kind}"', [x, other])
        yield Mixed('type: "SigmoidCrossEntropyLoss"', [x, other], {1: 2})
        if other[0] == items:
            for kind in ("HingeLoss", "MultinomialLogisticLoss"):
                yield Mixed(f'type: "{kind}"', [x, shape_of_items(items, len(other))], {1: each})
            yield Mixed('type: "ContrastiveLoss"', [x, other, shape_of_items(items, len(other))], {2: 2})


def shape_of_items(items: int, rank: int) -> Shape:
    return (items, *(1,) * (rank - 1))


@family
def inner_product(x: Shape) -> Iterator[Mixed]:
    for axis in axes(x):
        for transpose in ("false", "true"):
            settings = f"num_output: 6 axis: {axis} transpose: {transpose}"
            yield Mixed(f'type: "InnerProduct" inner_product_param {{ {settings} }}', [x])


@family
def gathered(x: Shape) -> Iterator[Mixed]:
    """Rows of a table: an Embed of indices of this shape, and a BatchReindex of such a blob."""
    yield Mixed('type: "Embed" embed_param { input_dim: 5 num_output: 6 }', [x], {0: 5})
    for index in ((4,), (4, 1), (1, 4), (4, 1, 1), (4, 1, 1, 1), (1, 2, 1, 2), (2, 1, 2, 1, 1)):
        yield Mixed('type: "BatchReindex"', [x, index], {1: x[0]})


@family
def reshaped(x: Shape) -> Iterator[Mixed]:
    for shape in sorted({*shapes_of(prod(x)), x[::-1], *((*x[:i], 1, *x[i:]) for i in axes(x))}):
        dims = " ".join(f"dim: {d}" for d in shape)
        yield Mixed(f'type: "Reshape" reshape_param {{ shape {{ {dims} }} }}', [x])
    for first in axes(x):
        for last in range(first, len(x)):
            yield Mixed(f'type: "Flatten" flatten_param {{ axis: {first} end_axis: {last} }}', [x])


@family
def parts(x: Shape) -> Iterator[Mixed]:
    for axis in axes(x):
        longer = (*x[:axis], x[axis] + 1, *x[axis + 1 :])
        yield Mixed(f'type: "Concat" concat_param {{ axis: {axis} }}', [x, longer])
        for kind in ("Slice", "TimeSlice"):
            yield Mixed(f'type: "{kind}" slice_param {{ axis: {axis} slice_point: 1 }} top: "a" top: "b"', [x])
        yield Mixed(f'type: "Tile" tile_param {{ axis: {axis} tiles: 2 }}', [x])
        yield Mixed(f'type: "Crop" crop_param {{ axis: {axis} offset: 1 }}', [tuple(d + 1 for d in x), x])


@family
def permuted(x: Shape) -> Iterator[Mixed]:
    for number, order in enumerate(permutations(axes(x))):
        if number % max(1, prod(range(1, len(x) + 1)) // 24) == 0:
            yield Mixed(f'type: "Permute" permute_param {{ {" ".join(f"order: {i}" for i in order)} }}', [x])


@family
def learned_blob(x: Shape) -> Iterator[Mixed]:
    dims = " ".join(f"dim: {d}" for d in x)
    yield Mixed(f'type: "Parameter" parameter_param {{ shape {{ {dims} }} }}', [])


@family
def windows(x: Shape) -> Iterator[Mixed]:
    """Convolutions over the axes behind `axis`, forward, transposed, and the columns that they multiply."""
    for axis in axes(x):
        size = f"axis: {axis} kernel_size: 2 pad: 1"
        for kind in ("Convolution", "Deconvolution"):
            yield Mixed(f'type: "{kind}" convolution_param {{ num_output: 3 {size} }}', [x])
        yield Mixed(f'type: "Im2col" convolution_param {{ {size} }}', [x])


KINDS = tuple(FAMILIES)
