"""Imports convolutions and poolings whose pads Caffe can express."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from layermem.errors import InputError
from layermem.integrations.onnx.graph import Array
from layermem.integrations.onnx.node import NetValue, OnnxNode, Padding, imports
from layermem.layers.base import Window
from layermem.layers.pooling import pooled_size
from layermem.proto.schema import Message


def windows(node: OnnxNode, x: NetValue, kernel: Sequence[int]) -> tuple[list[int], list[int], list[int], list[int]]:
    """Strides, dilations, pads before and pads after, by spatial axis, as the node itself states them."""
    axes = len(kernel)
    if len(x.shape) != axes + 2 or any(size < 1 for size in kernel):
        raise InputError(f"has windows of {axes} axes over a blob of {len(x.shape)}; export the model again")
    strides = node.ints_attribute("strides", [1] * axes)
    dilations = node.ints_attribute("dilations", [1] * axes)
    pads = node.ints_attribute("pads", [0] * 2 * axes)
    if (len(strides), len(dilations), len(pads)) != (axes, axes, 2 * axes) or min(*strides, *dilations) < 1:
        raise InputError("has strides, dilations or pads of another number of axes; export the model again")
    auto = node.text_attribute("auto_pad", "NOTSET")
    if auto.startswith("SAME") and node.op != "ConvTranspose":
        for i, size in enumerate(x.shape[2:]):
            total = max(0, (-(-size // strides[i]) - 1) * strides[i] + dilations[i] * (kernel[i] - 1) + 1 - size)
            pads[i], pads[axes + i] = total // 2, total - total // 2
            if auto == "SAME_LOWER":
                pads[i], pads[axes + i] = pads[axes + i], pads[i]
    elif auto not in ("NOTSET", "VALID"):
        raise InputError(f"has auto_pad {auto}, which layermem does not read; export it with explicit pads")
    if min(pads, default=0) < 0:
        raise InputError("has a negative pad, which Caffe does not have; use a Slice")
    return strides, dilations, pads[:axes], pads[axes:]


def merged(x: NetValue, before: list[int], behind: list[int], value: float) -> tuple[list[int], list[int]]:
    """Pads combined with those of a preceding Pad operator."""
    if x.pads is None:
        return before, behind
    if any(x.pads.before[:2]) or any(x.pads.behind[:2]) or x.pads.value != value:
        raise InputError(
            f"follows a Pad of other axes than the spatial ones, or with {x.pads.value:g} instead of {value:g}, which "
            "Caffe cannot express; remove the Pad"
        )
    pairs = zip(before, x.pads.before[2:]), zip(behind, x.pads.behind[2:])
    return [a + b for a, b in pairs[0]], [a + b for a, b in pairs[1]]


def symmetric(before: list[int], behind: list[int]) -> list[int]:
    if before != behind:
        raise InputError(
            f"pads by {before} before and {behind} behind; Caffe pads both sides alike: change the model to such pads"
        )
    return before


def prefix(node: OnnxNode, weight: int = 1) -> None:
    """Name the layers of a node after its weights: layer1.0.conv1.weight gives `layer1.0.conv1`."""
    constant = node.known(weight)
    if constant is not None and constant.name.endswith(".weight"):
        node.name = constant.name.removesuffix(".weight")


@imports("Conv", "ConvTranspose", layers="Convolution, Deconvolution")
def convolution(node: OnnxNode) -> None:
    prefix(node)
    transposed = node.op == "ConvTranspose"
    x, weight = node.blob(0, padded=True), node.constant(1)
    if weight.array.ndim < 3:
        raise InputError("has weights of fewer than 3 axes; export the model again")
    kernel = weight.array.shape[2:]
    if node.ints_attribute("kernel_shape", kernel) != list(kernel):
        raise InputError("has a kernel_shape that is not that of its weights; export the model again")
    strides, dilations, *both = windows(node, x, kernel)
    if transposed and (any(node.ints_attribute("output_padding")) or node.ints_attribute("output_shape")):
        raise InputError("has output_padding or output_shape, which Caffe does not have; use pads alone")
    if transposed and x.pads:
        raise InputError("follows a Pad, which Caffe cannot express there; remove the Pad")
    pads = symmetric(*merged(x, both[0], both[1], 0.0))
    group = node.int_attribute("group", 1)
    layer = node.layer("Deconvolution" if transposed else "Convolution")
    p = layer.convolution_param
    p.num_output = weight.array.shape[1] * group if transposed else weight.array.shape[0]
    fields = ((p.kernel_size, kernel, 0), (p.stride, strides, 1), (p.pad, pads, 0), (p.dilation, dilations, 1))
    for field, numbers, default in fields:
        if set(numbers) != {default}:
            field.extend(numbers if len(set(numbers)) > 1 else numbers[:1])
    if group != 1:
        p.group = group
    blobs = [weight]
    if node.has(2):
        blobs.append(node.constant(2))
    else:
        p.bias_term = False
    node.make(layer, x._replace(pads=None), blobs=blobs)


@imports("GlobalAveragePool", "GlobalMaxPool", layers="Pooling")
def global_pooling(node: OnnxNode) -> None:
    layer = node.layer("Pooling")
    layer.pooling_param.pool = 0 if node.op == "GlobalMaxPool" else 1
    layer.pooling_param.global_pooling = True
    node.make(layer, node.blob(0))


@imports("MaxPool", "AveragePool", layers="Pooling")
def pooling(node: OnnxNode) -> None:
    """Add a Pooling with the pad before as Caffe's pad; its rounding is chosen to make the same number of windows."""
    x, average = node.blob(0, padded=True), node.op == "AveragePool"
    kernel = node.ints_attribute("kernel_shape")
    strides, dilations, before, behind = windows(node, x, kernel)
    if len(kernel) != 2:
        raise InputError(f"pools {len(kernel)} axes; layermem pools images, 2 axes: Reshape them")
    if set(dilations) != {1}:
        raise InputError("has dilations, which Caffe's Pooling does not have; use a kernel without")
    if len(node.proto.output) > 1 and node.proto.output[1] in node.model.consumers:
        raise InputError("gives indices that are read; layermem does not read them from ONNX: export the net up to it")
    counted = [list(pads[2:]) for pads in (x.pads.before, x.pads.behind)] if x.pads else [[0, 0], [0, 0]]
    value = 0.0 if average or x.pads is None else -np.inf if x.pads.value <= -3e38 else x.pads.value
    if x.pads and not average and value != -np.inf:
        raise InputError(
            "follows a Pad with another number than the lowest, which Caffe cannot express; remove the Pad"
        )
    before, behind = merged(x, before, behind, x.pads.value if x.pads and not average else 0.0)
    if average and node.int_attribute("count_include_pad", 0):
        counted = [before, behind]
    ceil = bool(node.int_attribute("ceil_mode", 0))
    sizes = [
        _Axis(*numbers, ceil=ceil)
        for numbers in zip(x.shape[2:], kernel, strides, before, behind, counted[0], counted[1])
    ]
    rounds = [up for up in (True, False) if all(axis.fits(up, any(before), average) for axis in sizes)]
    if not rounds:
        raise InputError(
            f"pads by {before} before and {behind} behind, for which Caffe's Pooling has other windows or counts other "
            "elements; change the pads, or count_include_pad"
        )
    layer = node.layer("Pooling")
    layer.pooling_param.pool = 1 if average else 0
    _state_windows(layer.pooling_param, kernel, strides, before)
    if not rounds[0]:
        layer.pooling_param.round_mode = 1
    node.make(layer, x._replace(pads=None))


def _state_windows(p: Message, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int]) -> None:
    """Write windows into a PoolingParameter, in its shortest form."""
    for stem, numbers in (("kernel", kernel), ("stride", strides), ("pad", pads)):
        if len(set(numbers)) == 1:
            if stem == "kernel" or numbers[0] != (1 if stem == "stride" else 0):
                setattr(p, "kernel_size" if stem == "kernel" else stem, numbers[0])
        else:
            setattr(p, f"{stem}_h", numbers[0])
            setattr(p, f"{stem}_w", numbers[1])


class _Axis:
    """One axis of a pooling, in ONNX and in Caffe."""

    def __init__(
        self, size: int, kernel: int, stride: int, before: int, behind: int, first: int, last: int, *, ceil: bool
    ):
        self.size, self.kernel, self.stride, self.before = size, kernel, stride, before
        span = size + before + behind - kernel
        self.out = (-(-span // stride) if ceil else span // stride) + 1
        if ceil and (self.out - 1) * stride >= size + before:
            self.out -= 1
        self.counted = (-first, size + last)  # range of the elements that a mean counts

    def counts(self, begin: int, end: int) -> Array:
        start = np.arange(self.out) * self.stride - self.before
        counts: Array = np.minimum(start + self.kernel, end) - np.maximum(start, begin)
        return counts

    def fits(self, up: bool, padded: bool, average: bool) -> bool:
        """Whether Caffe, rounding `up` or down, makes the same windows and divides by the same counts."""
        if not 0 < self.out <= 1 << 20:
            raise InputError("makes no window, or too many; export the model again")
        try:
            out = pooled_size(Window(self.size, self.kernel, self.stride, self.before), up, padded)
        except InputError:
            return False
        caffe = (-self.before, self.size + self.before)
        return out == self.out and (not average or np.array_equal(self.counts(*self.counted), self.counts(*caffe)))


@imports("Pad", layers="the pad of the convolution or pooling behind it")
def pad(node: OnnxNode) -> None:
    x = node.blob(0)
    rank = len(x.shape)
    if node.text_attribute("mode", "constant") != "constant":
        raise InputError("pads with other values than a constant, which Caffe does not have; remove it")
    pads = node.ints(1, "pads")
    value = node.number(2) if node.has(2) else node.float_attribute("value", 0.0)
    if node.has(3):
        axes = [node.axis_of(axis, rank) for axis in node.ints(3)]
        given, pads = pads, [0] * 2 * rank
        for i, axis in enumerate(axes):
            pads[axis], pads[rank + axis] = given[i], given[len(axes) + i]
    if len(pads) != 2 * rank or min(pads) < 0:
        raise InputError("has negative pads, or not two for each axis; use a Slice to crop")
    if any(pads):
        x = x._replace(pads=Padding(tuple(pads[:rank]), tuple(pads[rank:]), value))
    node.result(x)
