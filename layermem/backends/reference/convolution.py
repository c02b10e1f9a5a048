"""Convolution and Deconvolution: each op uses the same three sums over windows, in different roles.

With image [N,H,W,C], maps [N,Ho,Wo,K] and filter [K,kh,kw,C/g] (layermem/ops/convolution.py):

    conv_fprop   maps[o] = sum_t image[p] filter[t]      Conv forward     Deconv dgrad
    conv_dgrad   image[p] += maps[o] filter[t]           Conv dgrad       Deconv forward
    conv_wgrad   dfilter[t] = sum_o maps[o] image[p]     wgrad of both

conv_fprop and conv_wgrad lay out windows as rows of a matrix (im2col), a few images at a time.  Each product covers one
image, and sums over the batch add one image after the other, so that an image has the same bits in any batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from layermem.backends.reference.base import Array, ReferenceCall, double_sum, kernel, stored, sum_of_items
from layermem.backends.reference.support.epilogue import finish_epilogue
from layermem.ops import Conv, ConvProblem, Deconv, OpRecord, Window

AT_ONCE = 1 << 22  # elements of a window matrix; it depends only on shapes, so that sums have one order


def taps(problem: ConvProblem) -> Iterator[tuple[int, int, slice, slice]]:
    """Yield (r, s, rows, columns): the slices of the padded image under tap (r, s) of every window."""
    down, right = problem.rows, problem.columns
    for r in range(down.kernel):
        for s in range(right.kernel):
            yield r, s, under(down, r), under(right, s)


def under(window: Window, tap: int) -> slice:
    start = tap * window.dilation
    return slice(start, start + (window.floor_out - 1) * window.stride + 1, window.stride)


def padded(problem: ConvProblem, image: Array) -> Array:
    down, right = problem.rows, problem.columns
    if not down.pad and not right.pad:
        return image
    return np.pad(image, ((0, 0), (down.pad, down.pad), (right.pad, right.pad), (0, 0)))


def window_rows(problem: ConvProblem, image: Array) -> Array:
    """[g, N, Ho*Wo, kh*kw*C/g]: the image under each window, one row per window."""
    down, right = problem.rows, problem.columns
    n, channels = image.shape[0], image.shape[3]
    image = padded(problem, image)
    shape = (problem.groups, n, down.floor_out, right.floor_out, down.kernel, right.kernel, channels // problem.groups)
    matrix = np.empty(shape, image.dtype)
    for r, s, rows, columns in taps(problem):
        matrix[..., r, s, :] = by_group(problem, image[:, rows, columns])
    return matrix.reshape(problem.groups, n, down.floor_out * right.floor_out, -1)


def by_group(problem: ConvProblem, array: Array) -> Array:
    """[N,H,W,C] -> [g,N,H,W,C/g]"""
    n, h, w, channels = array.shape
    return np.moveaxis(array.reshape(n, h, w, problem.groups, channels // problem.groups), 3, 0)


def map_rows(problem: ConvProblem, maps: Array) -> Array:
    """[N,Ho,Wo,K] -> [g, N, Ho*Wo, K/g]"""
    n, _, _, channels = maps.shape
    return by_group(problem, maps).reshape(problem.groups, n, -1, channels // problem.groups)


def weight_rows(problem: ConvProblem, weights: Array) -> Array:
    """(K, C/g, kh, kw) -> [g, K/g, kh*kw*C/g]"""
    return stored(weights).reshape(problem.groups, weights.shape[0] // problem.groups, -1)


def portions(problem: ConvProblem, images: int) -> Iterator[slice]:
    down, right = problem.rows, problem.columns
    row = problem.groups * problem.filter.count // problem.k
    step = max(1, AT_ONCE // (down.floor_out * right.floor_out * row))
    return (slice(start, min(start + step, images)) for start in range(0, images, step))


def conv_fprop(problem: ConvProblem, maps: Array, image: Array, weights: Array) -> None:
    w = weight_rows(problem, weights).transpose(0, 2, 1)[:, None]
    for part in portions(problem, image.shape[0]):
        values = window_rows(problem, image[part]) @ w
        n, ho, wo, channels = maps[part].shape
        maps[part] = np.moveaxis(values.reshape(problem.groups, n, ho, wo, -1), 0, 3).reshape(n, ho, wo, channels)


def conv_dgrad(problem: ConvProblem, image: Array, maps: Array, weights: Array) -> None:
    down, right = problem.rows, problem.columns
    n, height, width, channels = image.shape
    values = map_rows(problem, maps)
    w = stored(weights).reshape(problem.groups, values.shape[3], down.kernel, right.kernel, -1)
    total = np.zeros((n, height + 2 * down.pad, width + 2 * right.pad, channels), image.dtype)
    for r, s, rows, columns in taps(problem):
        tap = (values @ w[:, None, :, r, s]).reshape(problem.groups, n, down.floor_out, right.floor_out, -1)
        total[:, rows, columns] += np.moveaxis(tap, 0, 3).reshape(n, down.floor_out, right.floor_out, channels)
    image[...] = total[:, down.pad : down.pad + height, right.pad : right.pad + width]


def conv_wgrad(problem: ConvProblem, maps: Array, image: Array) -> Iterator[Array]:
    """Yield the contribution of each image, for one pair of bottom and top, to the gradient of the weights: [g, K/g,
    kh*kw*C/g]."""
    for part in portions(problem, image.shape[0]):
        rows, windows = map_rows(problem, maps[part]), window_rows(problem, image[part])
        for item in range(rows.shape[1]):
            yield rows[:, item].transpose(0, 2, 1) @ windows[:, item]


def weight_gradient(op: Conv | Deconv, call: ReferenceCall, pairs: Iterable[tuple[Array, Array]]) -> None:
    """Compute dw0 from pairs of maps and image; with several pairs, image by image over all of them."""
    problem = op.problem
    k, c, kh, kw = problem.filter.shape
    shape = (problem.groups, k // problem.groups, kh * kw * c)
    each = zip(*(conv_wgrad(problem, stored(maps), stored(image)) for maps, image in pairs), strict=True)
    dtype = call["dy0"].dtype
    total = sum_of_items(op, call, "dw0", shape, dtype, (part for parts in each for part in parts))
    if "dw0" in call:
        stored(call["dw0"])[...] = total.reshape(k, kh, kw, c)


def bias_gradient(op: OpRecord, call: ReferenceCall, frames: int = 1) -> None:
    """Compute dw1, image by image over all pairs; `frames`: of each item, which lie frame by frame."""
    if not call.wants("dw1"):
        return
    dys = call.all("dy")
    images = range(dys[0].shape[0])
    items = len(images) // frames
    sums = (double_sum(dy[image], (1, 2)) for item in range(items) for image in images[item::items] for dy in dys)
    total = sum_of_items(op, call, "dw1", (dys[0].shape[1],), np.float64, sums)
    if "dw1" in call:
        call["dw1"][...] = total


def carry_bytes(op: Conv | Deconv, role: str) -> int:
    return op.problem.filter.nbytes if role == "dw0" else 8 * max(op.problem.k, op.problem.c)


def fprop_without_epilogue(op: Conv, call: ReferenceCall, ys: list[Array]) -> None:
    """y = conv(x) + bias for each pair, without the epilogue of a fused op."""
    for x, y in zip(call.all("x")[: op.pairs], ys, strict=True):
        conv_fprop(op.problem, stored(y), stored(x), call["w0"])
        if op.bias:
            stored(y)[...] += call["w1"]


@kernel(Conv, "forward")
def convolution_fprop(op: Conv, call: ReferenceCall) -> None:
    if not op.relu and not op.residual:
        fprop_without_epilogue(op, call, call.all("y"))
        return
    y = np.empty_like(call["y0"])
    fprop_without_epilogue(op, call, [y])
    finish_epilogue(op, call, y, relu=op.relu, residual=op.residual)


@kernel(Conv, "wgrad", carry=carry_bytes)
def convolution_wgrad(op: Conv, call: ReferenceCall) -> None:
    if call.wants("dw0"):
        weight_gradient(op, call, zip(call.all("dy"), call.all("x"), strict=True))
    bias_gradient(op, call)


@kernel(Conv, "dgrad")
def convolution_dgrad(op: Conv, call: ReferenceCall) -> None:
    for dy, dx in zip(call.all("dy"), call.all("dx"), strict=True):
        conv_dgrad(op.problem, stored(dx), stored(dy), call["w0"])


@kernel(Deconv, "forward")
def deconvolution_fprop(op: Deconv, call: ReferenceCall) -> None:
    for x, y in zip(call.all("x"), call.all("y"), strict=True):
        conv_dgrad(op.problem, stored(y), stored(x), call["w0"])
        if op.bias:
            stored(y)[...] += call["w1"]


@kernel(Deconv, "wgrad", carry=carry_bytes)
def deconvolution_wgrad(op: Deconv, call: ReferenceCall) -> None:
    if call.wants("dw0"):
        weight_gradient(op, call, zip(call.all("x"), call.all("dy"), strict=True))
    bias_gradient(op, call)


@kernel(Deconv, "dgrad")
def deconvolution_dgrad(op: Deconv, call: ReferenceCall) -> None:
    for dy, dx in zip(call.all("dy"), call.all("dx"), strict=True):
        conv_fprop(op.problem, stored(dx), stored(dy), call["w0"])
