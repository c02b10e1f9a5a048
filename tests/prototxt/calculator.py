"""Computes the shapes and the sizes of a prototxt net with nothing of layermem but its schema.

This oracle of layermem.graph for tests is slow, short, and written only from Caffe's formulas.  Caffe prints
"Memory required for data: N" while it builds a net; `memory_required` gives that N.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from math import prod
from pathlib import Path

from google.protobuf import text_format

from layermem.proto import schema

Shapes = dict[str, tuple[int, ...]]

LOSSES = (
    "MultiBoxLoss",
    "SoftmaxWithLoss",
    "Accuracy",
    "SigmoidCrossEntropyLoss",
    "EuclideanLoss",
    "ContrastiveLoss",
    "SmoothL1Loss",
)
SAME_SHAPE = (
    "ReLU",
    "Clip",
    "Sigmoid",
    "LRN",
    "Dropout",
    "BatchNorm",
    "BN",
    "Scale",
    "Eltwise",
    "Softmax",
    "Normalize",
)


@cache
def parsed(path: Path):
    return text_format.Parse(path.read_text(), schema.NetParameter())


def layers(path: Path, phase: int, stages: tuple[str, ...] = ()) -> list:
    """The layers of one phase, by the fields of NetStateRule in prototxt/: phase, stage, not_stage."""
    net = parsed(path)

    def holds(rule) -> bool:
        return (
            (not rule.HasField("phase") or rule.phase == phase)
            and all(stage in stages for stage in rule.stage)
            and not any(stage in stages for stage in rule.not_stage)
        )

    return [each for each in net.layer if not each.include or any(holds(rule) for rule in each.include)]


def pair(message, name: str, default: int) -> tuple[int, int]:
    """kernel, stride, pad as (vertical, horizontal): scalar or repeated `name`(_size), or `name`_h and `name`_w."""
    if message.HasField(f"{name}_h"):
        return getattr(message, f"{name}_h"), getattr(message, f"{name}_w")
    value = getattr(message, "kernel_size" if name == "kernel" else name)
    values = list(value) if not isinstance(value, int) else [value]
    return (values[0], values[-1]) if values else (default, default)


def convolved(layer, shape: tuple[int, ...]) -> tuple[int, ...]:
    p = layer.convolution_param
    dilation = p.dilation[0] if p.dilation else 1
    sizes = []
    for extent, k, s, pad in zip(shape[2:], pair(p, "kernel", 1), pair(p, "stride", 1), pair(p, "pad", 0)):
        window = dilation * (k - 1) + 1
        sizes.append(
            (extent - 1) * s + window - 2 * pad
            if layer.type == "Deconvolution"
            else (extent + 2 * pad - window) // s + 1
        )
    return (shape[0], p.num_output, *sizes)


def pooled(p, shape: tuple[int, ...]) -> tuple[int, ...]:
    if p.global_pooling:
        return (*shape[:2], 1, 1)
    sizes = []
    for extent, k, s, pad in zip(shape[2:], pair(p, "kernel", 1), pair(p, "stride", 1), pair(p, "pad", 0)):
        span = extent + 2 * pad - k
        size = (span // s if schema.enum_name(p, "round_mode") == "FLOOR" else -(-span // s)) + 1
        if pad and (size - 1) * s >= extent + pad:
            size -= 1
        sizes.append(size)
    return (*shape[:2], *sizes)


def sourced(layer, batch: int | None) -> list[tuple[int, ...]]:
    """Shapes of a data layer's tops, as far as the prototxt says them; the digits are 8x8."""
    if layer.type == "DummyData":
        shapes = [tuple(s.dim) for s in layer.dummy_data_param.shape]
        return [(batch or s[0], *s[1:]) for s in shapes]
    t, count = layer.transform_param, batch or layer.data_param.batch_size
    if layer.type == "AnnotatedData":  # eight boxes for each image, where there is no database
        return [(count, 3, t.resize_param.height, t.resize_param.width), (1, 1, 8 * count, 8)]
    if "digits" in layer.data_param.source:
        return [(count, 1, 8, 8), (count,)]
    return [(count, 1 if t.force_gray else 3, t.crop_size, t.crop_size), (count,)][: len(layer.top)]


def top_shapes(layer, known: Shapes, batch: int | None) -> list[tuple[int, ...]]:
    bottoms = [known[name] for name in layer.bottom]
    if layer.type in ("AnnotatedData", "Data", "DummyData"):
        return sourced(layer, batch)
    if layer.type in ("Convolution", "Deconvolution"):
        return [convolved(layer, bottoms[0])]
    if layer.type == "Pooling":
        return [pooled(layer.pooling_param, bottoms[0])] * len(layer.top)  # the second has places of maxima
    if layer.type == "Upsample" and len(bottoms) == 1:
        return [(*bottoms[0][:2], *(layer.upsample_param.scale * size for size in bottoms[0][2:]))]
    if layer.type == "Upsample":
        return [(*bottoms[0][:2], layer.upsample_param.upsample_h, layer.upsample_param.upsample_w)]
    if layer.type == "InnerProduct":
        return [(*bottoms[0][: layer.inner_product_param.axis], layer.inner_product_param.num_output)]
    if layer.type == "Embed":
        return [(*bottoms[0], layer.embed_param.num_output)]
    if layer.type == "LSTM":
        return [(*bottoms[0][:2], layer.recurrent_param.num_output)]
    if layer.type == "Concat":
        axis = layer.concat_param.axis
        return [(*bottoms[0][:axis], sum(b[axis] for b in bottoms), *bottoms[0][axis + 1 :])]
    if layer.type == "Permute":
        return [tuple(bottoms[0][axis] for axis in layer.permute_param.order)]
    if layer.type == "PriorBox":  # two sizes, and each aspect ratio both ways
        boxes = 2 + 2 * len(layer.prior_box_param.aspect_ratio)
        return [(1, 2, 4 * boxes * prod(bottoms[0][2:]))]
    if layer.type == "Reshape":  # with a 0 for a size of the bottom, and a -1
        sizes = [bottoms[0][axis] if size == 0 else size for axis, size in enumerate(layer.reshape_param.shape.dim)]
        rest = prod(bottoms[0]) // -prod(sizes)
        return [tuple(rest if size == -1 else size for size in sizes)]
    if layer.type == "ROIPooling":
        return [(bottoms[1][0], bottoms[0][1], layer.roi_pooling_param.pooled_h, layer.roi_pooling_param.pooled_w)]
    if layer.type == "DetectionOutput":
        return [(1, 1, bottoms[0][0] * layer.detection_output_param.keep_top_k, 7)]
    if layer.type == "DetectionEvaluate":
        return [(1, 1, layer.detection_evaluate_param.num_classes - 1 + bottoms[0][2], 5)]
    if layer.type == "Crop":
        return [(*bottoms[0][:2], *bottoms[1][2:])]
    if layer.type == "Interp":
        return [(*bottoms[0][:2], layer.interp_param.height, layer.interp_param.width)]
    if layer.type == "Flatten":
        return [(bottoms[0][0], prod(bottoms[0][1:]))]
    if layer.type == "Slice":  # in equal parts
        return [(bottoms[0][0], bottoms[0][1] // len(layer.top), *bottoms[0][2:])] * len(layer.top)
    if layer.type in LOSSES:
        return [()]
    assert layer.type in SAME_SHAPE, layer.type
    return [bottoms[0]]


def walk(net: list, batch: int | None = None) -> list[tuple[object, list[tuple[int, ...]], list[tuple[int, ...]]]]:
    """(layer, bottom shapes, top shapes) in order."""
    known: Shapes = {}
    rows = []
    for layer in net:
        bottoms = [known[name] for name in layer.bottom]
        tops = top_shapes(layer, known, batch)
        known.update(zip(layer.top, tops))
        rows.append((layer, bottoms, tops))
    return rows


def memory_required(net: list, batch: int | None = None) -> int:
    """Caffe's number: 4 bytes a value, over the tops of all layers, in-place tops and Split copies counted again."""
    rows = walk(net, batch)
    uses: Counter[tuple[str, int]] = Counter()  # (blob, version) -> readers; a Split stands where there are several
    version: Counter[str] = Counter()
    size: dict[tuple[str, int], int] = {}
    for layer, _, tops in rows:
        uses.update((name, version[name]) for name in layer.bottom)
        for name, shape in zip(layer.top, tops):
            version[name] += 1
            size[name, version[name]] = prod(shape)
    copies = sum(count * size[blob] for blob, count in uses.items() if count > 1)
    return 4 * (sum(size.values()) + copies)


def parameters(net: list, batch: int | None = None) -> dict[str, int]:
    """Values of weights and biases of each layer that has any; BatchNorm's running averages are none."""
    counts: dict[str, int] = {}
    shared: set[str] = set()  # names of parameters that an earlier layer has
    for layer, bottoms, _ in walk(net, batch):
        names = {each.name for each in layer.param if each.name}
        if names and names <= shared:
            continue
        shared |= names
        if layer.type in ("Convolution", "Deconvolution"):
            p = layer.convolution_param
            kh, kw = pair(p, "kernel", 1)
            counts[layer.name] = bottoms[0][1] * p.num_output * kh * kw // p.group + p.bias_term * p.num_output
        elif layer.type == "InnerProduct":
            p = layer.inner_product_param
            counts[layer.name] = p.num_output * (prod(bottoms[0][p.axis :]) + p.bias_term)
        elif layer.type == "Embed":
            p = layer.embed_param
            counts[layer.name] = p.num_output * (p.input_dim + p.bias_term)
        elif layer.type == "LSTM":  # four gates, each of x, of h and of a bias
            outputs = layer.recurrent_param.num_output
            counts[layer.name] = 4 * outputs * (prod(bottoms[0][2:]) + outputs + 1)
        elif layer.type == "Normalize":
            counts[layer.name] = bottoms[0][1]
        elif layer.type == "BN":
            counts[layer.name] = 2 * bottoms[0][1]
        elif layer.type == "Scale":
            counts[layer.name] = bottoms[0][1] * (1 + layer.scale_param.bias_term)
    return counts
