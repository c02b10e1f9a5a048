"""Layers in slices of a batch: all slices together give the bits of the whole batch, on every backend.

SLICED   name -> SlicedCase        NORMS   shapes and slices of a BatchNorm in two passes, by name
MOMENT_BLOBS, MOMENT_SLICES   blobs of 12 items whose moments slices add up, and items of the slices
WARPGROUP_CONVOLUTIONS        of 12 items, whose gradients of filters the warpgroup engine adds up
sliced()  a case      op_cases()  those of the other modules that a backend computes in slices of one item and of two
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from layermem.backends.registry import KernelRegistry
from layermem.layers import Layer
from layermem.layers.base import Step
from layermem.layers.images import image_shape
from layermem.ops import BatchSlice, OpRecord
from tests.cases.base import CASES
from tests.cases.convolution import conv_text
from tests.layers.harness import layer_of, steps_of
from tests.op_case import OpCase, Shape

Counts = Sequence[Sequence[int]]
BOTH, CPU, CUDA = ("cpu", "cuda"), ("cpu",), ("cuda",)


@dataclass(frozen=True)
class SlicedCase:
    """A layer over a whole batch, which is also run in slices.

    op       the layer and its bottoms, of which those that have items have as many as the first
    counts   items of the slices, for each way to cut the batch
    volumes  the layer is a convolution over items of the shape [C, frames, H, W], in the memory of images
    splits   of the cuda backend: images of a split of the gradient of the filter, for each way to sum it
    devices  those that run it: only one where sizes that its blocks need are large for the other, or where the other
             has no sum in slices
    """

    op: OpCase
    counts: Counts = ()
    volumes: bool = False
    splits: Sequence[int] = ()
    devices: Sequence[str] = BOTH

    @property
    def shapes(self) -> Sequence[Shape]:
        return self.op.shapes("medium")

    @property
    def items(self) -> int:
        return self.shapes[0][0]

    def layer(self, count: int) -> Layer:
        """The layer over `count` items."""
        shapes = [(count, *shape[1:]) if shape[0] == self.items else shape for shape in self.shapes]
        text = self.op.text
        if self.volumes:
            text += f" input_param {{ shape {{ {' '.join(f'dim: {size}' for size in shapes[0])} }} }}"
            shapes = [image_shape(shape, 1) for shape in shapes]
        return layer_of(text, *shapes, phase=self.op.phase)

    def values(self, layer: Layer, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Bottoms, parameters and gradients of tops by role, with Caffe's axes."""
        xs, ws = self.op.inputs(layer, rng)
        dys = [rng.standard_normal(top.shape) for top in layer.tops]
        return {f"{stem}{i}": a for stem, arrays in (("x", xs), ("w", ws), ("dy", dys)) for i, a in enumerate(arrays)}


def sliced(
    text: str,
    shapes: Sequence[Shape],
    counts: Counts = (),
    *,
    volumes: bool = False,
    splits: Sequence[int] = (),
    devices: Sequence[str] = BOTH,
    **more: Any,
) -> SlicedCase:
    """A case; `more` is for OpCase."""
    return SlicedCase(OpCase(text, text, {"medium": shapes}, **more), counts, volumes, splits, devices)


def equal(items: int, *sizes: int) -> Counts:
    """Slices of one size, for each of these sizes."""
    return [(size,) * (items // size) for size in sizes]


def by_frame(array: np.ndarray, items: int) -> np.ndarray:
    """An array over items, or over the frames of `items` items, as [frames, items, ..]."""
    return array.reshape(-1, items, *array.shape[1:])


def piece(array: np.ndarray, batch_slice: BatchSlice) -> np.ndarray:
    """The items of a slice as [frames, items, ..], in place."""
    return by_frame(array, batch_slice.items)[:, batch_slice.first : batch_slice.first + batch_slice.count]


def op_cases(items: int, counts: Counts, kernels: KernelRegistry[Any, Any], *, masks: bool) -> Iterator[SlicedCase]:
    """Cases of the other modules that these kernels compute in slices; `masks`: those that write masks of bits too."""
    for case in CASES.values():
        op = case.of_items(items)
        if op is None or case.normalized or case.residual or case.relu or case.saved:
            continue
        layer, batch_slice = op.layer(), BatchSlice(0, 1, items)
        steps = [(step.record or layer.record, step) for step in steps_of(layer)]
        if all(
            kernels.implements(record, step.step)
            and (masks or "mask" not in step.writes)
            and is_sliceable(replace(record, batch_slice=batch_slice), step, kernels)
            for record, step in steps
        ):
            yield SlicedCase(op, counts)


def is_sliceable(record: OpRecord, step: Step, kernels: KernelRegistry[Any, Any]) -> bool:
    along = record.over_items(step.step)
    sums = along.sums & set(step.writes)
    return not along.refusal and all(kernels.carry_bytes(record, step.step, role) is not None for role in sums)


SLICED: dict[str, SlicedCase] = {}


def add(name: str, *args: Any, **more: Any) -> None:
    assert name not in SLICED, f"two cases are named '{name}'"
    SLICED[name] = sliced(*args, **more)


def conv(name: str, outputs: int, settings: str, shape: Shape, kind: str = "Convolution", **more: Any) -> None:
    """A convolution, of volumes if its items have more than three axes."""
    items = shape[0]
    counts = {7: [(3, 4), (1,) * 7, (5, 1, 1)], 5: [(2, 3), (1,) * 5]}.get(items, equal(items, 1))
    more = {"counts": counts, "volumes": len(shape) > 4, **more}
    add(name, conv_text(outputs, settings, kind), [shape], **more)


# Names describe the kernel of the whole batch on the cpu; the kernel of a slice alone would often differ.
conv("copies of parts", 24, "kernel_size: 3 pad: 1", (7, 12, 20, 20), devices=CPU)
conv("copies of parts, strided", 24, "kernel_size: 3 stride: 2 pad: 1", (7, 12, 25, 25), devices=CPU)
conv("copies with lanes over outputs", 20, "kernel_size: 5 pad: 2", (7, 3, 21, 21), devices=CPU)
conv("gradient itself", 70, "kernel_size: 1", (7, 160, 5, 5))
conv("gradient itself, dilated", 40, "kernel_size: 3 dilation: 2 pad: 2", (7, 40, 7, 7))
conv("cut along input channels", 70, "kernel_size: 3 stride: 2 pad: 1", (3, 530, 9, 9), devices=CPU)
conv("tiles of two by two", 40, "kernel_size: 3 pad: 1", (7, 33, 8, 8), devices=CPU)
conv("tiles of four by four", 33, "kernel_size: 3 pad: 1", (7, 36, 12, 12), devices=CPU)
conv("tiles of four by four, wide groups", 80, "kernel_size: 3 pad: 1 group: 2", (7, 72, 13, 13), devices=CPU)
conv("tiles of four by four, weights in parts", 192, "kernel_size: 3 pad: 1", (6, 192, 12, 12), devices=CPU)
conv("groups", 36, "kernel_size: 3 pad: 1 group: 2", (7, 24, 11, 11))
conv("groups of one", 36, "kernel_size: 3 pad: 1 group: 36", (7, 36, 14, 14))
conv("deconvolution", 12, "kernel_size: 4 stride: 2 pad: 1", (7, 24, 9, 9), "Deconvolution")
conv("deconvolution by tiles", 33, "kernel_size: 3 pad: 1", (7, 34, 12, 12), "Deconvolution", devices=CPU)
conv("volumes: copies of parts", 24, "kernel_size: 3 pad: 1", (5, 12, 4, 10, 11), devices=CPU)
conv("volumes: copies of parts, strided", 24, "kernel_size: 3 pad: 1 stride: 2", (5, 12, 5, 13, 11))
conv("volumes: lanes over outputs", 20, "kernel_size: 3 pad: 1 stride: 2", (5, 3, 4, 11, 12))
conv("volumes: gradient itself", 70, "kernel_size: 1", (5, 160, 3, 3, 4))
conv("volumes: gradient itself, with pads", 70, "kernel_size: 2 pad: 1 dilation: 2", (5, 160, 2, 5, 4))
conv("volumes: frames in pads", 5, "kernel_size: 2 pad: 3 pad: 0 pad: 1 stride: 2", (5, 3, 2, 5, 4))
conv("volumes: tiles of two by two", 40, "kernel_size: 3 pad: 1", (5, 33, 3, 6, 5), devices=CPU)
STRIDED = "kernel_size: 3 pad: 1 stride: 2 stride: 1 stride: 1"
conv("volumes: tiles of four by four", 33, STRIDED, (5, 36, 4, 12, 12), devices=CPU)
conv("volumes: groups of one", 36, "kernel_size: 3 pad: 1 group: 36", (5, 36, 3, 9, 9), devices=CPU)
conv("volumes: deconvolution", 12, "kernel_size: 4 stride: 2 pad: 1", (5, 24, 3, 5, 4), "Deconvolution")
conv("volumes: deconvolution by tiles", 33, "kernel_size: 3 pad: 1", (5, 34, 2, 12, 12), "Deconvolution", devices=CPU)
conv("volumes: four axes", 9, "kernel_size: 2 pad: 1 stride: 2", (5, 6, 4, 3, 7, 5))

# The windows of an image are whole stages of the gradient of a filter on cuda, or not; slices end at splits, within
# them, and one exchanges an open split for another.
WINDOWS = {
    "35 windows": (6, "kernel_size: 3 stride: 2 pad: 1 group: 2", (12, 4, 13, 9)),
    "4 windows": (5, "kernel_h: 2 kernel_w: 3 dilation: 2 dilation: 1", (12, 3, 4, 4)),
    "64 windows": (4, "kernel_size: 1", (12, 4, 8, 8)),
}
ONE = 1 << 20  # images of a split: all
VOLUMES = {
    "one axis of frames": (6, "kernel_size: 3 pad: 1 group: 2", (6, 4, 3, 5, 4)),
    "strides and gaps": (4, "kernel_size: 2 stride: 2 dilation: 2 pad: 1", (6, 8, 5, 7, 6)),
    "a group a channel": (4, "kernel_size: 2 group: 4", (6, 4, 3, 4, 3)),
    "mixed width": (4, "kernel_size: 3 pad: 1 stride: 2", (6, 3, 3, 5, 4)),
    "one tap": (5, "kernel_size: 1 kernel_size: 3 kernel_size: 2", (6, 3, 3, 4, 5)),
    "one frame": (4, "kernel_size: 2", (6, 4, 2, 5, 5)),
    "frames in the pad alone": (4, "kernel_size: 2 pad: 3 pad: 0 pad: 1 stride: 2", (6, 2, 2, 3, 3)),
    "no tap reaches some, anywhere in memory": (1, "kernel_size: 1 pad: 2 pad: 0 pad: 0", (6, 1, 3, 3, 3)),
    "a bias in parts that end within items": (40, "kernel_size: 1", (6, 1, 2, 10, 9)),
    "two axes of frames": (3, "kernel_size: 2 pad: 1 stride: 2", (6, 4, 4, 3, 3, 4)),
}
for _kind, _suffix in (("Convolution", ""), ("Deconvolution", ", of a deconvolution")):
    for _name, _edge in WINDOWS.items():
        conv(_name + _suffix, *_edge, _kind, counts=equal(12, 1, 2, 3, 4, 6), splits=(2, 4, 5, 7, 12))
    for _name, _edge in VOLUMES.items():
        if _kind == "Convolution" or " pad: 0" not in _edge[1]:
            conv(_name + _suffix, *_edge, _kind, counts=equal(6, 1, 2, 3), splits=(5, 6, ONE))


def inner_product(name: str, outputs: int, shape: Shape, counts: Counts, settings: str = "", **more: Any) -> None:
    text = f'type: "InnerProduct" inner_product_param {{ num_output: {outputs} {settings} }}'
    add(name, text, [shape], counts, **more)


SEVEN = [(3, 4), (1,) * 7]
FOUR = [(1, 3), (2, 2), (1,) * 4]
NINE = [(1,) * 9, (4, 5)]
SIX = equal(6, 3, 1)
inner_product("few rows", 30, (7, 5, 3, 3), SEVEN)
inner_product("many rows", 130, (1100, 20), [(513, 587), (100, 700, 300)])
inner_product("many rows, transposed", 130, (1100, 20), [(100, 1000)], "transpose: true")
inner_product("rows within items", 33, (64, 9, 40), [(30, 34), (1, 62, 1)], "axis: 2")
inner_product("many rows without bias", 70, (40, 40), [(3, 37), (20, 20)], "bias_term: false")
for _shape, _axis in (((40, 12), 1), ((6, 3, 4, 2), 1), ((6, 7, 9), 2)):
    for _transpose in ("false", "true"):
        inner_product(
            f"rows of {'x'.join(map(str, _shape))}, transpose {_transpose}",
            5,
            _shape,
            equal(_shape[0], _shape[0] // 2, 1, 2),
            f"axis: {_axis} transpose: {_transpose}",
        )

SCALE, BY_ITEM = 'type: "Scale" scale_param { bias_term: true }', 'type: "Scale" scale_param { axis: 0 }'
BIAS_BY_ITEM = 'type: "Bias" bias_param { axis: 0 }'
add("channels", SCALE, [(7, 70, 13, 11)], SEVEN)
add("channels before pixels", SCALE, [(7, 70, 99)], SEVEN)
add("channels by quads", SCALE, [(6, 8, 20, 5)], SIX)
add("channels before many pixels", SCALE, [(6, 3, 700)], SIX)
add("channels of rows", 'type: "Bias"', [(150, 70)], [(30, 120), (60, 4, 86)])
add("channels of few rows", 'type: "Bias"', [(6, 70)], SIX)
add("channels and pixels", 'type: "Scale" scale_param { num_axes: 3 }', [(150, 6, 5, 4)], [(30, 120)], devices=CPU)
add("one factor", 'type: "Scale" scale_param { num_axes: 0 axis: 0 }', [(7, 6, 15, 14)], [(3, 4)])
add("slopes", 'type: "PReLU"', [(7, 70, 13, 11)], SEVEN)
add("slopes of three channels", 'type: "PReLU"', [(6, 3, 15, 9)], SIX)
SHARED = 'type: "PReLU" prelu_param { channel_shared: true }'
add("one slope", SHARED, [(6, 700)], SIX, devices=CUDA)  # not of slices on the cpu
add("lengths of pixels", 'type: "Normalize"', [(7, 70, 13, 11)], SEVEN)
add(
    "lengths of pixels, few channels",
    'type: "Normalize" norm_param { across_spatial: false channel_shared: false }',
    [(6, 5, 25, 16)],
    SIX,
)
add(
    "lengths of items, one scale",
    'type: "Normalize" norm_param { across_spatial: true channel_shared: true }',
    [(7, 70, 13, 11)],
    SEVEN,
)
for _items, _columns, _outputs, _counts in ((7, 30, 9, SEVEN), (8, 40, 6, [(4, 4)])):
    _text = f'type: "Embed" embed_param {{ num_output: {_outputs} input_dim: 5 }}'
    add(f"rows of a table, {_items} items", _text, [(_items, _columns)], _counts, labels=0, classes=5)

VALID, IGNORE = "loss_param { ignore_label: 1 normalization: VALID }", "loss_param { ignore_label: 1 }"
FULL = "loss_param { normalization: FULL }"


def loss(kind: str, name: str, shapes: Sequence[Shape], counts: Counts, settings: str = "", **more: Any) -> None:
    """A loss whose second bottom holds labels if `classes` are given."""
    labels = {"labels": 1} if "classes" in more else {}
    add(f"{kind}: {name}", f'type: "{kind}" {settings}', shapes, counts, **{**labels, **more})


SOFTMAX, TERMS = "SoftmaxWithLoss", [(9, 2999)] * 2
loss(SOFTMAX, "rows", [(21, 1000), (21,)], [(10, 11), (1, 3, 17)], classes=1000)
loss(SOFTMAX, "short rows", [(1700, 10), (1700,)], [(2, 1, 1697), (900, 800)], VALID, classes=10)
loss(SOFTMAX, "pixels", [(5, 21, 15, 17), (5, 1, 15, 17)], [(1,) * 5, (4, 1)], VALID, classes=21)
loss(SOFTMAX, "across", [(5, 5, 50), (5, 50)], [(2, 3)], FULL, classes=5)
for _name, _settings in (("", ""), (", some ignored", IGNORE), (", divided by all", FULL)):
    loss(SOFTMAX, f"three classes{_name}", [(300, 3), (300,)], equal(300, 150, 50), _settings, classes=3)
    loss(SOFTMAX, f"maps{_name}", [(6, 3, 20, 30), (6, 20, 30)], SIX, _settings, classes=3)
loss("SigmoidCrossEntropyLoss", "targets", TERMS, NINE, VALID, classes=2)
loss("SigmoidCrossEntropyLoss", "few targets", [(6, 700)] * 2, SIX, VALID, classes=2)
loss("EuclideanLoss", "distances", TERMS, NINE)
loss("EuclideanLoss", "distances of maps", [(6, 3, 20, 15), (6, 900)], SIX)
loss("SmoothL1Loss", "distances", [(6, 700)] * 2, SIX)
loss("SmoothL1Loss", "weighted distances", TERMS * 2, NINE)
loss("ContrastiveLoss", "pairs", [(19, 1000), (19, 1000), (19,)], [(10, 9), (1, 18)], labels=2, classes=2)
loss("ContrastiveLoss", "few pairs", [(6, 5), (6, 5), (6,)], SIX, labels=2, classes=2)
loss("HingeLoss", "squares", [(9, 10, 30, 7), (9,)], [(1,) * 9, (5, 4)], "hinge_loss_param { norm: L2 }", classes=2100)
loss("HingeLoss", "rows", [(6, 700), (6,)], SIX, classes=700)
loss("MultinomialLogisticLoss", "shares", [(25, 700), (25,)], [(12, 13), (3, 1, 21)], classes=700, positive=True)
loss("MultinomialLogisticLoss", "few shares", [(6, 4), (6,)], SIX, classes=4, positive=True)
loss("InfogainLoss", "rows", [(6, 3), (6,), (1, 1, 3, 3)], SIX, IGNORE, classes=3)


def pooling(name: str, settings: str, shape: Shape, counts: Counts, **more: Any) -> None:
    add(name, f'type: "Pooling" pooling_param {{ {settings} }}', [shape], counts, **more)


add("dropout", 'type: "Dropout"', [(6, 37, 3)], [(1, 2, 3), (1,) * 6])
add("dropout of maps", 'type: "Dropout"', [(6, 3, 5, 3)], SIX)
add("dropout of rows", 'type: "Dropout"', [(6, 4)], SIX)
STOCHASTIC = "pool: STOCHASTIC kernel_size:"
pooling("stochastic pooling", f"{STOCHASTIC} 2 stride: 2", (6, 5, 7, 7), [(1, 2, 3)], positive=True)
pooling("stochastic pooling of pixels", f"{STOCHASTIC} 1", (6, 3, 5, 3), SIX)
pooling("stochastic pooling of one pixel", f"{STOCHASTIC} 1", (6, 4, 1, 1), SIX)
pooling("max pooling", "kernel_size: 3 stride: 2", (4, 5, 9, 9), [(1, 3)])
add("normalization across", 'type: "LRN"', [(4, 20, 5, 5)], [(1, 3)])
WITHIN = 'type: "LRN" lrn_param { norm_region: WITHIN_CHANNEL local_size: 3 }'
add("normalization within", WITHIN, [(4, 6, 9, 9)], [(1, 3)])
add("softmax of short rows", 'type: "Softmax"', [(20, 10)], [(1, 19), (10, 10)])
add("softmax of rows", 'type: "Softmax"', [(20, 100)], [(1, 19)])
add("relu", 'type: "ReLU"', [(4, 5, 9, 9)], [(1, 3)], devices=CPU)  # a slice of cuda's mask would end within a byte
for _kind, _bottoms in (("AbsVal", 1), ("Eltwise", 2), ("TanH", 1)):  # of cuda, a float at a time
    add(f"{_kind} beside steps of 16 bytes", f'type: "{_kind}"', [(6, 3, 5, 3)] * _bottoms, equal(6, 1))
MAPS, ROWS, LINES = (4, 6, 15, 14), (40, 300), (4, 6, 200, 3)
HALVES = [(1, 39), (20, 20)]
add("products", BY_ITEM, [MAPS] * 2, FOUR)
add("products of rows", BY_ITEM, [(4, 70)] * 2, FOUR)
add("factors of items", BY_ITEM, [MAPS, MAPS[:1]], FOUR)
add("factors of channels", BY_ITEM, [MAPS, MAPS[:2]], FOUR)
add("factors of channels, one pixel", BY_ITEM, [(4, 6, 1, 1), (4, 6)], FOUR)
add("factors of rows", BY_ITEM, [LINES, LINES[:3]], FOUR, devices=CPU)
add("factors of rows of a matrix", BY_ITEM, [ROWS, ROWS[:1]], HALVES)
add("factors of long rows", BY_ITEM, [(300, 5000), (300,)], [(150, 150)], devices=CUDA)
add("biases of items", BIAS_BY_ITEM, [MAPS, MAPS[:1]], FOUR)
add("biases of channels", BIAS_BY_ITEM, [MAPS, MAPS[:2]], FOUR)
add("biases of rows of a matrix", BIAS_BY_ITEM, [ROWS, ROWS[:1]], HALVES)

# Blocks of 64 lines within slices and across them on the cpu; channels that cuda reads four at a time or one at a time,
# and before their pixels; one part and several.
NORMS: dict[str, tuple[Shape, Counts, Sequence[str]]] = {
    "blocks within slices": ((6, 5, 8, 8), SIX, BOTH),
    "blocks across slices": ((7, 70, 13, 11), SEVEN, BOTH),
    "blocks of many slices": ((150, 9), [(30, 120), (60, 4, 86), (5,) * 30], BOTH),
    "parts": ((9, 33, 70, 50), [(4, 5), (1,) * 9, (1, 8)], CPU),
    "channels before many pixels": ((9, 6, 9001), [(4, 5), (1,) * 9], CPU),
    "quads": ((6, 8, 20, 5), [(3, 3), (1, 2, 3)], BOTH),
    "odd channels": ((5, 3, 9, 7), [(1,) * 5], BOTH),
    "channels before pixels": ((6, 3, 700), SIX, BOTH),
    "rows": ((40, 70), [(1, 39)], BOTH),
    "parts of quads": ((8, 4, 60, 40), [(2,) * 4], BOTH),
}

# Quads and single channels of images, of several units of rows; rows; channels before their pixels.
MOMENT_BLOBS: list[Shape] = [(12, 8, 7, 7), (12, 3, 5, 5), (12, 20, 16, 16), (12, 36), (12, 5, 70)]
MOMENT_SLICES: Counts = [(6, 6), (1,) * 12, (3, 9), (4, 4, 4)]
WARPGROUP_CONVOLUTIONS: list[tuple[str, Shape]] = [
    ("num_output: 8 kernel_size: 3", (12, 4, 7, 9)),
    ("num_output: 8 kernel_size: 2", (12, 1, 6, 8)),  # a stage of four windows would have runs of four elements
]
