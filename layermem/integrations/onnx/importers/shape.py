"""Imports operators that move elements, and reductions."""

from __future__ import annotations

from math import prod

import numpy as np

from layermem.errors import InputError
from layermem.integrations.onnx.node import Constant, NetValue, OnnxNode, imports


@imports("Identity", layers="nothing")
def identity(node: OnnxNode) -> None:
    node.result(node.value(0))


@imports("Cast", layers="nothing: all blobs are float32")
def cast(node: OnnxNode) -> None:
    if node.int_attribute("to", 1) not in (1, 10, 11, 16):
        raise InputError("makes numbers of another type than floating point; Caffe's blobs are float32: remove it")
    node.result(node.value(0))


@imports("Concat", layers="Concat")
def concat(node: OnnxNode) -> None:
    blobs = [node.blob(i) for i in range(node.input_count)]
    layer = node.layer("Concat")
    layer.concat_param.axis = node.axis(1, len(blobs[0].shape))
    node.make(layer, *blobs)


@imports("Flatten", layers="Flatten")
def flatten(node: OnnxNode) -> None:
    x = node.blob(0)
    axis = node.int_attribute("axis", 1)
    axis += len(x.shape) if axis < 0 else 0
    shape = (prod(x.shape[:axis]), prod(x.shape[axis:]))
    if axis == 1 and len(x.shape) > 1:
        node.make("Flatten", x)
    else:
        node.make(node.reshape_layer(x.shape, shape), x)


@imports("Reshape", layers="Reshape, or Flatten")
def reshape(node: OnnxNode) -> None:
    x, dims = node.blob(0), node.ints(1)
    if node.int_attribute("allowzero", 0) and 0 in dims:
        raise InputError("makes an axis of size 0; remove it")
    shape = [x.shape[i] if d == 0 and i < len(x.shape) else d for i, d in enumerate(dims)]
    if shape.count(-1) > 1 or any(d < -1 or d == 0 for d in shape):
        raise InputError(f"has shape {dims}; export the model again")
    if -1 in shape:
        rest = prod(d for d in shape if d != -1)
        shape[shape.index(-1)] = prod(x.shape) // rest
    new = tuple(shape)
    if prod(new) != prod(x.shape):
        raise InputError(f"turns {list(x.shape)} into {list(new)}; give the batch for which the model was exported")
    if len(new) == 2 and len(x.shape) > 2 and new[0] == x.shape[0]:
        node.make("Flatten", x)
    elif new == x.shape:
        node.result(x)
    else:
        node.make(node.reshape_layer(x.shape, new), x)


@imports("Squeeze", "Unsqueeze", layers="Reshape")
def squeeze(node: OnnxNode) -> None:
    x = node.blob(0)
    if node.op == "Squeeze":
        every = [axis for axis, size in enumerate(x.shape) if size == 1]
        axes = {node.axis_of(axis, len(x.shape)) for axis in node.ints(1, "axes", every)}
        if any(x.shape[axis] != 1 for axis in axes):
            raise InputError("removes an axis that is not of size 1; export the model again")
        shape = [size for axis, size in enumerate(x.shape) if axis not in axes]
    else:
        given = node.ints(1, "axes")
        rank = len(x.shape) + len(given)
        axes, sizes = {node.axis_of(axis, rank) for axis in given}, iter(x.shape)
        shape = [1 if axis in axes else next(sizes) for axis in range(rank)]
    node.make(node.reshape_layer(x.shape, tuple(shape)), x)


@imports("Transpose", layers="Permute")
def transpose(node: OnnxNode) -> None:
    x = node.blob(0)
    layer = node.layer("Permute")
    layer.permute_param.order.extend(node.ints_attribute("perm", range(len(x.shape))[::-1]))
    node.make(layer, x)


@imports("Split", layers="Slice, Silence")
def split(node: OnnxNode) -> None:
    x, count = node.blob(0), len(node.proto.output)
    axis = node.axis(0, len(x.shape))
    size = x.shape[axis]
    each = -(-size // count)
    sizes = node.ints(1, "split", [min(each, size - i * each) for i in range(count)])
    if len(sizes) != count or sum(sizes) != size or min(sizes) < 1:
        raise InputError(f"splits {size} elements into {sizes}; export the model again")
    if count == 1:
        node.result(x)
        return
    layer = node.layer("Slice")
    layer.slice_param.axis = axis
    layer.slice_param.slice_point.extend(sum(sizes[: i + 1]) for i in range(count - 1))
    tops = node.model.net.finish(layer, (x,), [node.top(i) for i in range(count)])
    for i, top in enumerate(tops):
        node.result(top, i)
    unread = [top for i, top in enumerate(tops) if not node.is_read(i)]
    if unread:
        node.model.net.finish(node.layer("Silence", "rest"), unread, ())


@imports("Slice", layers="Slice, Silence")
def cut(node: OnnxNode) -> None:
    """Cut each axis into the elements before, inside and after; those outside go to a Silence."""
    x = node.blob(0)
    starts, ends = node.ints(1, "starts"), node.ints(2, "ends")
    axes = node.ints(3, "axes", range(len(starts)))
    if set(node.ints(4, "", [1] * len(starts))) != {1} or not len(starts) == len(ends) == len(axes):
        raise InputError("takes elements in other steps than 1, which Caffe's Slice does not have; remove it")
    for number, (start, end, axis) in enumerate(zip(starts, ends, axes)):
        x = _cut(node, x, node.axis_of(axis, len(x.shape)), start, end, number)
    node.result(x)


def _cut(node: OnnxNode, x: NetValue, axis: int, start: int, end: int, number: int = 0) -> NetValue:
    """The elements [start, end) of an axis."""
    size = x.shape[axis]
    start, end = (min(max(at + size if at < 0 else at, 0), size) for at in (start, end))
    if start >= end:
        raise InputError("takes no elements; export the model again")
    if (start, end) == (0, size):
        return x
    points = [at for at in (start, end) if 0 < at < size]
    layer = node.layer("Slice", f"axis{number}")
    layer.slice_param.axis = axis
    layer.slice_param.slice_point.extend(points)
    parts = node.model.net.finish(layer, (x,), [None] * (len(points) + 1))
    kept = parts.pop(1 if start else 0)
    node.model.net.finish(node.layer("Silence", f"rest{number}"), parts, ())
    return kept


@imports("Gather", layers="Embed, or Slice for an index that is constant")
def gather(node: OnnxNode) -> None:
    if not node.is_constant(0):
        _element(node)
        return
    table = node.constant(0)
    if table.array.ndim != 2 or node.int_attribute("axis", 0) or node.is_constant(1):
        raise InputError("takes elements of a constant; Caffe has rows of a table by a blob alone: export up to it")
    layer = node.layer("Embed")
    layer.embed_param.input_dim, layer.embed_param.num_output = table.array.shape
    layer.embed_param.bias_term = False
    node.make(layer, node.blob(1), blobs=[table])


def _element(node: OnnxNode) -> None:
    """Take one element of an axis of a blob; an index without axes removes the axis."""
    x, index = node.blob(0), node.constant(1).array
    if index.size != 1 or index.ndim > 1:
        raise InputError(
            "takes several elements of a blob by index; Caffe takes one, or a Slice of neighbours: use that"
        )
    axis, at = node.axis(0, len(x.shape)), int(index.reshape(-1)[0])
    at += x.shape[axis] if at < 0 else 0
    if not 0 <= at < x.shape[axis]:
        raise InputError(f"takes element {at} of {x.shape[axis]}; export the model again")
    kept = _cut(node, x, axis, at, at + 1)
    if index.ndim:
        node.result(kept)
    else:
        node.make(node.reshape_layer(kept.shape, kept.shape[:axis] + kept.shape[axis + 1 :]), kept)


@imports("Tile", layers="Tile")
def tile(node: OnnxNode) -> None:
    x, repeats = node.blob(0), node.ints(1)
    changed = [axis for axis, count in enumerate(repeats) if count != 1]
    if len(repeats) != len(x.shape):
        raise InputError("has repeats for another number of axes; export the model again")
    for axis in changed[:-1]:
        layer = node.layer("Tile", f"axis{axis}")
        layer.tile_param.axis, layer.tile_param.tiles = axis, repeats[axis]
        x = node.between(layer, x)
    if not changed:
        node.result(x)
        return
    layer = node.layer("Tile")
    layer.tile_param.axis, layer.tile_param.tiles = changed[-1], repeats[changed[-1]]
    node.make(layer, x)


@imports("Resize", "Upsample", layers="Upsample, or Interp with align_corners")
def resize(node: OnnxNode) -> None:
    x, last = node.blob(0), node.op == "Upsample"
    if len(x.shape) != 4:
        raise InputError(f"resizes a blob of {len(x.shape)} axes; layermem resizes N x C x H x W: Reshape it")
    axes = [node.axis_of(axis, 4) for axis in node.ints_attribute("axes", range(4))]
    by_size = not last and node.has(3)
    given = node.ints(3) if by_size else node.constant(1 if last else 2).array.reshape(-1)
    if len(given) != len(axes):
        raise InputError("has sizes or scales for another number of axes; export the model again")
    if node.text_attribute("keep_aspect_ratio_policy", "").startswith("not_"):
        raise InputError("keeps the aspect ratio, which Caffe does not; export it with the sizes that result")
    sizes = list(x.shape)
    for axis, value in zip(axes, given):
        sizes[axis] = int(value) if by_size else int(x.shape[axis] * float(value) + 1e-6)
    if tuple(sizes[:2]) != x.shape[:2]:
        raise InputError("resizes other axes than height and width; layermem resizes those: export it so")
    mode = node.text_attribute("mode", "nearest")
    how = node.text_attribute("coordinate_transformation_mode", "asymmetric" if last else "half_pixel")
    height, width = sizes[2:]
    if mode == "linear" and how == "align_corners":
        layer = node.layer("Interp")
        layer.interp_param.height, layer.interp_param.width = height, width
        node.make(layer, x)
        return
    factor = height // x.shape[2]
    if mode != "nearest" or factor < 1 or (height, width) != (factor * x.shape[2], factor * x.shape[3]):
        raise InputError(
            f"resizes by {mode} ({how}); Caffe has nearest by a whole number, or linear with align_corners"
        )
    rounding = node.text_attribute("nearest_mode", "floor" if last else "round_prefer_floor")
    if (how, rounding) not in _NEAREST:
        raise InputError(f"takes the nearest pixel by {how} and {rounding}; use asymmetric and floor")
    layer = node.layer("Upsample")
    layer.upsample_param.scale = factor
    node.make(layer, x)


_NEAREST = {
    ("asymmetric", "floor"),
    ("half_pixel", "round_prefer_floor"),
    ("half_pixel", "round_prefer_ceil"),
    ("pytorch_half_pixel", "round_prefer_floor"),
}


REDUCTIONS = {"ReduceSum": 1, "ReduceL1": 2, "ReduceSumSquare": 3, "ReduceMean": 4}  # ReductionParameter.ReductionOp


@imports(*REDUCTIONS, "ReduceMax", layers="Reduction, or Pooling for the mean or the maximum of all pixels")
def reduction(node: OnnxNode) -> None:
    x = node.blob(0)
    rank = len(x.shape)
    given = node.ints(1, "axes", ())
    if not given and node.int_attribute("noop_with_empty_axes", 0):
        if node.op not in ("ReduceMean", "ReduceSum", "ReduceMax"):
            raise InputError("reduces no axes; remove it")
        node.result(x)
        return
    axes = sorted({node.axis_of(axis, rank) for axis in given or range(rank)})
    if axes != list(range(rank - len(axes), rank)) or not axes:
        raise InputError(f"reduces axes {axes} of {rank}; Caffe reduces all from one on: Transpose them to the end")
    keep = bool(node.int_attribute("keepdims", 1))
    if node.op in ("ReduceMean", "ReduceMax") and (rank, axes) == (4, [2, 3]):
        layer = node.layer("Pooling", "" if keep else "mean" if node.op == "ReduceMean" else "max")
        layer.pooling_param.pool, layer.pooling_param.global_pooling = int(node.op == "ReduceMean"), True
        if keep:
            node.make(layer, x)
        else:
            node.make("Flatten", node.between(layer, x))
        return
    if node.op == "ReduceMax":
        raise InputError("takes the maximum of other axes than height and width; Caffe pools those: Transpose them")
    layer = node.layer("Reduction", "reduced" if keep else "")
    layer.reduction_param.operation, layer.reduction_param.axis = REDUCTIONS[node.op], axes[0]
    if keep:
        y = node.between(layer, x)
        node.make(node.reshape_layer(y.shape, (*x.shape[: axes[0]], *(1,) * len(axes))), y)
    else:
        node.make(layer, x)


@imports("Shape", layers="nothing: the shape is a constant")
def shape(node: OnnxNode) -> None:
    x = node.value(0)
    sizes = x.array.shape if isinstance(x, Constant) else x.shape
    first, last = node.int_attribute("start", 0), node.int_attribute("end", len(sizes))
    node.result(Constant(np.array(sizes[first:last], np.int64)))
