"""Layers that consist of several others: a net contains their parts instead.

    BN  of SegNet with a second and third top: other parts compute the mean and the variance of each channel
    Convolution, Deconvolution, Im2col  of other ranks than N x C x H x W: the bottoms become images before it, and its
                  tops become blobs of their rank again (images.py)
    DetectionEvaluate  with `name_size_file`: the sizes of images come from a layer before it that reads the file
    InfogainLoss  with `source`: its matrix comes from a layer before it that reads the file
    SPP  a pyramid of Poolings of x [N,C,H,W]: level i cuts the image into 2^i x 2^i windows, i < pyramid_height.  Each
         is flattened, and all are joined: y [N, C (1 + 4 + 16 + ..)].  A pyramid of one level is that Pooling alone

memory  the memory of the parts: a MAX keeps an index per window
source  Caffe base_conv_layer.cpp, infogain_loss_layer.cpp, spp_layer.cpp; detection_evaluate_layer.cpp of the SSD fork;
        bn_layer.cpp of SegNet

Parts are named after their layer: `spp/pool0`, `spp/flat0` and so on; the last one has the layer's name and tops.  In
a convolution the part with the weights has the layer's name: `conv/images`, `conv`, `conv/top`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from layermem.errors import InputError
from layermem.layers.affine_norm import INFERENCE, fork_of
from layermem.layers.base import Layer, Message, Tensor, make_layer
from layermem.layers.convolution import BaseConvolution
from layermem.layers.data import MATRIX, SIZES
from layermem.layers.detection import DetectionOutput
from layermem.layers.im2col import Im2col
from layermem.layers.images import image_shape
from layermem.ops.detection import ITEM_SIZE
from layermem.proto.schema import LayerParameter, copy_of

Parts = Callable[
    [Message, Sequence[Tensor], Sequence[Layer]], Iterator[Message]
]  # (layer, bottoms, the layers that make them) -> parts
COMPOSITES: dict[str, Parts] = {}
FAMILIES: dict[str, str] = {}  # of composites, as in Layer.family


def composite(name: str, *, family: str = "") -> Callable[[Parts], Parts]:
    """Register a function that yields the parts of a layer under Caffe's type name."""

    def register(parts: Parts) -> Parts:
        COMPOSITES[name] = parts
        if family:
            FAMILIES[name] = family
        return parts

    return register


def part(whole: Message, name: str, kind: str, bottoms: Sequence[str], tops: Sequence[str] = ()) -> Message:
    """A layer `whole/name` of type `kind`; its top has that name too, unless `tops` names others."""
    name = f"{whole.name}/{name}"
    return LayerParameter(name=name, type=kind, bottom=bottoms, top=tops or (name,), phase=whole.phase)


def check_counts(whole: Message) -> None:
    for kind, names in (("bottom", whole.bottom), ("top", whole.top)):
        if len(names) != 1:
            raise InputError(f"has {len(names)} {kind}s; {whole.type} takes 1: add or remove '{kind}:' lines")


def last_of(whole: Message, last: Message) -> Message:
    """Return the last part: with the layer's name, tops and loss weights, but without its `param` blocks."""
    last.name = whole.name
    last.top[:] = whole.top
    last.loss_weight[:] = whole.loss_weight
    last.param.extend(whole.param)
    return last


@composite("SPP", family="pooling")
def spp(whole: Message, bottoms: Sequence[Tensor], makers: Sequence[Layer]) -> Iterator[Message]:
    check_counts(whole)
    p, x = whole.spp_param, bottoms[0]
    if len(x.shape) != 4:
        raise InputError(f"pools a bottom of {len(x.shape)} axes ({x}); SPP takes 4: N x C x H x W")
    if p.pyramid_height < 1:
        raise InputError("has no pyramid_height; set spp_param { pyramid_height } to at least 1")
    poolings = [_level(whole, i, x.shape[2:]) for i in range(p.pyramid_height)]
    if len(poolings) == 1:
        yield last_of(whole, poolings[0])
        return
    yield from poolings
    flat = [part(whole, f"flat{i}", "Flatten", pooling.top) for i, pooling in enumerate(poolings)]
    yield from flat
    yield last_of(whole, part(whole, "joined", "Concat", [each.top[0] for each in flat]))


def _level(whole: Message, level: int, size: Sequence[int]) -> Message:
    """Return the Pooling of one level: windows just large enough to cover the image, padded alike on both sides."""
    pooling = part(whole, f"pool{level}", "Pooling", whole.bottom)
    pooling.propagate_down[:] = whole.propagate_down
    p = pooling.pooling_param
    p.pool = whole.spp_param.pool
    bins = 2**level
    for axis, length in zip("hw", size, strict=True):
        kernel = -(-length // bins)
        pad = (kernel * bins - length + 1) // 2
        if pad >= kernel:
            raise InputError(
                f"cuts {length} pixels into {bins} windows of {kernel}, which leaves one of padding alone; "
                f"use pyramid_height {level}, or a larger bottom"
            )
        setattr(p, f"kernel_{axis}", kernel)
        setattr(p, f"stride_{axis}", kernel)
        setattr(p, f"pad_{axis}", pad)
    return pooling


@composite("BN")
def batch_statistics(whole: Message, bottoms: Sequence[Tensor], makers: Sequence[Layer]) -> Iterator[Message]:
    """Yield the parts of the second top, E(x), and third top, E(x^2) - E(x)^2, which send no gradient, then the layer
    itself."""
    inner = copy_of(whole)
    if len(whole.top) in (2, 3) and len(bottoms) == 1 and len(bottoms[0].shape) in (2, 4):
        p, x = whole.bn_param, bottoms[0]
        if fork_of(p) != "SegNet" or p.bn_mode == INFERENCE:
            raise InputError(
                f"has {len(whole.top)} tops; the BN of SegNet alone has them, in bn_mode LEARN: name one top"
            )
        if len(whole.loss_weight) not in (0, len(whole.top)):
            raise InputError(
                f"gives {len(whole.loss_weight)} loss_weight values for {len(whole.top)} blobs; give one each"
            )
        yield from _statistics(whole, x)
        del inner.top[1:], inner.loss_weight[1:]
    yield inner


def _statistics(whole: Message, x: Tensor) -> Iterator[Message]:
    channels = part(whole, "channels", "Permute", whole.bottom)
    channels.permute_param.order[:] = (1, 0, *range(2, len(x.shape)))
    channels.propagate_down[:] = (False,)
    yield channels
    mean = part(whole, "mean", "Reduction", channels.top)
    mean.reduction_param.axis, mean.reduction_param.operation = 1, mean.reduction_param.MEAN
    yield mean
    yield _of_channels(whole, 1, mean, x.shape[1])
    if len(whole.top) == 3:
        squares = part(whole, "squares", "Reduction", channels.top)
        squares.reduction_param.axis, squares.reduction_param.operation = 1, squares.reduction_param.SUMSQ
        squares.reduction_param.coeff = x.shape[1] / x.count
        yield squares
        square = part(whole, "square", "Power", mean.top)
        square.power_param.power = 2
        yield square
        variance = part(whole, "variance", "Eltwise", (squares.top[0], square.top[0]))
        variance.eltwise_param.coeff[:] = (1, -1)
        yield variance
        yield _of_channels(whole, 2, variance, x.shape[1])


def _of_channels(whole: Message, index: int, of: Message, channels: int) -> Message:
    """Return a layer that makes top `index`, of shape 1 x C x 1 x 1."""
    top = part(whole, f"top{index}", "Reshape", of.top, (whole.top[index],))
    top.reshape_param.shape.dim[:] = (1, channels, 1, 1)
    top.loss_weight[:] = whole.loss_weight[index : index + 1]
    return top


@composite("InfogainLoss")
def infogain_loss(whole: Message, bottoms: Sequence[Tensor], makers: Sequence[Layer]) -> Iterator[Message]:
    """Yield the layer itself, after a layer that reads the matrix if there is no third bottom."""
    p = whole.infogain_loss_param
    loss = copy_of(whole)
    if len(bottoms) == 2 and p.HasField("source"):
        matrix = part(whole, "matrix", MATRIX, ())
        matrix.infogain_loss_param.source = p.source
        rank, axis = len(bottoms[0].shape), p.axis
        classes = bottoms[0].shape[axis] if -rank <= axis < rank else 0
        matrix.input_param.shape.add(dim=(1, 1, classes, classes))
        if classes:
            yield matrix
            loss.bottom.append(matrix.top[0])
            loss.propagate_down.extend([False] * bool(whole.propagate_down))
    yield loss


@composite("DetectionEvaluate")
def detection_evaluate(whole: Message, bottoms: Sequence[Tensor], makers: Sequence[Layer]) -> Iterator[Message]:
    """Yield the layer itself, after a layer that reads the sizes of the images if it names a file of them."""
    evaluate = copy_of(whole)
    if whole.detection_evaluate_param.name_size_file and len(makers) == 2:
        output = makers[0]
        if not isinstance(output, DetectionOutput):
            raise InputError(
                f"has a name_size_file and detections from a layer of type {output.type}, which does not tell their "
                "images; use those of a DetectionOutput, or remove name_size_file"
            )
        sizes = part(whole, "sizes", SIZES, ())
        sizes.detection_evaluate_param.CopyFrom(whole.detection_evaluate_param)
        sizes.input_param.shape.add(dim=(output.record.items, ITEM_SIZE))
        yield sizes
        evaluate.bottom.append(sizes.top[0])
        evaluate.propagate_down.extend([False] * bool(whole.propagate_down))
    yield evaluate


@composite("Convolution")
@composite("Deconvolution")
@composite("Im2col")
def convolution(whole: Message, bottoms: Sequence[Tensor], makers: Sequence[Layer]) -> Iterator[Message]:
    """Yield the layer itself if its bottoms are N x C x H x W; otherwise it works on images, which other parts make."""
    inner = copy_of(whole)
    inner.ClearField("input_param")
    shapes = {x.shape for x in bottoms}
    if len(shapes) != 1 or len(whole.bottom) != len(whole.top):
        yield inner  # its setup raises the error
        return
    (shape,) = shapes
    axis = whole.convolution_param.axis
    if not -len(shape) <= axis < len(shape) or (len(shape), axis % len(shape)) == (4, 1):
        yield inner
        return
    inner.convolution_param.axis = axis = axis % len(shape)
    images = [f"{whole.name}/images{i or ''}" for i in range(len(bottoms))]
    maps = [f"{whole.name}/maps{i or ''}" for i in range(len(bottoms))]
    inner.input_param.shape.add(dim=shape)
    inner.bottom[:], inner.top[:] = images, maps
    inner.ClearField("loss_weight")
    layer = make_layer(inner, whole.phase, [Tensor(image_shape(shape, axis))] * len(bottoms))
    assert isinstance(layer, (BaseConvolution, Im2col))
    for i, (bottom, image) in enumerate(zip(whole.bottom, images)):
        before = _between(whole, f"images{i or ''}", "AsImages", bottom, image, shape, axis)
        before.propagate_down[:] = whole.propagate_down[i : i + 1]
        yield before
    yield inner
    for i, (between, blob) in enumerate(zip(maps, whole.top)):
        after = _between(whole, f"top{i or ''}", "FromImages", between, blob, layer.blob_shape, axis)
        one_each = len(whole.loss_weight) == len(whole.top)  # otherwise the part is refused
        after.loss_weight[:] = whole.loss_weight[i : i + 1] if one_each else whole.loss_weight
        yield after


def _between(whole: Message, name: str, kind: str, bottom: str, top: str, shape: Sequence[int], axis: int) -> Message:
    """Return the part between a blob of `shape` and its images, in either direction."""
    message = part(whole, name, kind, (bottom,), (top,))
    message.input_param.shape.add(dim=shape)
    message.convolution_param.axis = axis
    return message
