"""ConvNd and DeconvNd: each tap of a window combines one slice of the image with the maps.

With image [axes of frames, N, H, W, C] and maps likewise, and s(t) the slices of the padded image under tap t of every
window (layermem/ops/convolution.py):

    conv_fprop   maps = sum_t image[s(t)] filter[t]          ConvNd forward     DeconvNd dgrad
    conv_dgrad   image[s(t)] += maps filter[t]               ConvNd dgrad       DeconvNd forward
    conv_wgrad   dfilter[t] = sum_o maps[o] image[s(t)][o]   wgrad of both

Each product covers one item, and sums over the batch add one item after the other (convolution.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from layermem.backends.reference.base import Array, ReferenceCall, kernel, stored, sum_of_items
from layermem.backends.reference.convolution import bias_gradient, under
from layermem.ops import ConvNd, ConvNdProblem, DeconvNd, Window
from layermem.ops.frames import image_frames, maps_frames


def windows(problem: ConvNdProblem) -> tuple[Window, ...]:
    return (*problem.outer, problem.rows, problem.columns)


def taps(problem: ConvNdProblem) -> Iterator[tuple[int, tuple[slice, ...]]]:
    """Yield, for each tap, its number and its slices [frames, N, H, W] of the padded image."""
    shape = [window.kernel for window in windows(problem)]
    for number, place in enumerate(np.ndindex(*shape)):
        slices = [under(window, tap) for window, tap in zip(windows(problem), place, strict=True)]
        yield number, (*slices[:-2], slice(None), *slices[-2:])


def pads(problem: ConvNdProblem) -> list[tuple[int, int]]:
    """The pads of [frames, N, H, W, C]."""
    every = [(window.pad, window.pad) for window in windows(problem)]
    return [*every[:-2], (0, 0), *every[-2:], (0, 0)]


def axes_of_image(problem: ConvNdProblem, image: Array) -> Array:
    """View [F N, H, W, C] as [axes of frames, N, H, W, C]."""
    sizes = [window.size for window in problem.outer]
    return stored(image).reshape(*sizes, problem.n, problem.rows.size, problem.columns.size, problem.c)


def axes_of_maps(problem: ConvNdProblem, maps: Array) -> Array:
    sizes = [window.floor_out for window in problem.outer]
    return stored(maps).reshape(*sizes, problem.n, problem.rows.floor_out, problem.columns.floor_out, problem.k)


def by_group(problem: ConvNdProblem, array: Array) -> Array:
    """[axes of frames, N, H, W, C] -> [N, g, positions of an item, C/g]"""
    items = np.moveaxis(array, -4, 0)
    return items.reshape(len(items), -1, problem.groups, array.shape[-1] // problem.groups).transpose(0, 2, 1, 3)


def from_groups(problem: ConvNdProblem, products: Array, like: Array) -> Array:
    """The reverse: the axes of `like` again."""
    frames_and_items = (problem.n, *like.shape[:-4], *like.shape[-3:])
    return np.moveaxis(products.transpose(0, 2, 1, 3).reshape(frames_and_items), 0, -4)


def filter_taps(problem: ConvNdProblem, weights: Array) -> Array:
    """View (K, C/g, taps, kw) as [g, K/g, taps kw, C/g]."""
    k, c = problem.k // problem.groups, problem.c // problem.groups
    return stored(weights).reshape(problem.groups, k, -1, c)


def conv_fprop(problem: ConvNdProblem, maps: Array, image: Array, weights: Array) -> None:
    padded, filters = np.pad(axes_of_image(problem, image), pads(problem)), filter_taps(problem, weights)
    y = axes_of_maps(problem, maps)
    total = np.zeros_like(by_group(problem, y))
    for tap, slices in taps(problem):
        total += by_group(problem, padded[slices]) @ filters[:, :, tap].transpose(0, 2, 1)
    y[...] = from_groups(problem, total, y)


def conv_dgrad(problem: ConvNdProblem, image: Array, maps: Array, weights: Array) -> None:
    x, filters = axes_of_image(problem, image), filter_taps(problem, weights)
    values = by_group(problem, axes_of_maps(problem, maps))
    total = np.zeros([size + before + after for size, (before, after) in zip(x.shape, pads(problem))], x.dtype)
    for tap, slices in taps(problem):
        total[slices] += from_groups(problem, values @ filters[:, :, tap], total[slices])
    x[...] = total[tuple(slice(before, before + size) for size, (before, _) in zip(x.shape, pads(problem)))]


def conv_wgrad(problem: ConvNdProblem, maps: Array, image: Array) -> Iterator[Array]:
    """Yield the contribution of each item, for one pair of bottom and top, to the gradient of the weights: [g, K/g,
    taps kw, C/g]."""
    padded = np.pad(axes_of_image(problem, image), pads(problem))
    by_output = by_group(problem, axes_of_maps(problem, maps)).transpose(0, 1, 3, 2)
    for item in range(problem.n):
        image_of_item = padded[..., item : item + 1, :, :, :]
        products = (by_output[item] @ by_group(problem, image_of_item[slices])[0] for _, slices in taps(problem))
        yield np.stack([*products], axis=2)


def weight_gradient(op: ConvNd | DeconvNd, call: ReferenceCall, pairs: Iterable[tuple[Array, Array]]) -> None:
    """Compute dw0 from pairs of maps and image; with several pairs, item by item over all of them."""
    k, c, height, width = op.problem.filter.shape
    shape = (op.problem.groups, k // op.problem.groups, height * width, c)
    each = zip(*(conv_wgrad(op.problem, maps, image) for maps, image in pairs), strict=True)
    dtype = call["dy0"].dtype
    total = sum_of_items(op, call, "dw0", shape, dtype, (part for parts in each for part in parts))
    if "dw0" in call:
        stored(call["dw0"])[...] = total.reshape(k, height, width, c)


def carry_bytes(op: ConvNd | DeconvNd, role: str) -> int:
    return op.problem.filter.nbytes if role == "dw0" else 8 * max(op.problem.k, op.problem.c)


def add_bias(call: ReferenceCall, y: Array) -> None:
    if "w1" in call:
        stored(y)[...] += call["w1"]


@kernel(ConvNd, "forward")
def convolution_fprop(op: ConvNd, call: ReferenceCall) -> None:
    for x, y in zip(call.all("x"), call.all("y"), strict=True):
        conv_fprop(op.problem, y, x, call["w0"])
        add_bias(call, y)


@kernel(ConvNd, "dgrad")
def convolution_dgrad(op: ConvNd, call: ReferenceCall) -> None:
    for dy, dx in zip(call.all("dy"), call.all("dx"), strict=True):
        conv_dgrad(op.problem, dx, dy, call["w0"])


@kernel(ConvNd, "wgrad", carry=carry_bytes)
def convolution_wgrad(op: ConvNd, call: ReferenceCall) -> None:
    if call.wants("dw0"):
        weight_gradient(op, call, zip(call.all("dy"), call.all("x"), strict=True))
    bias_gradient(op, call, maps_frames(op.problem.outer))


@kernel(DeconvNd, "forward")
def deconvolution_fprop(op: DeconvNd, call: ReferenceCall) -> None:
    for x, y in zip(call.all("x"), call.all("y"), strict=True):
        conv_dgrad(op.problem, y, x, call["w0"])
        add_bias(call, y)


@kernel(DeconvNd, "dgrad")
def deconvolution_dgrad(op: DeconvNd, call: ReferenceCall) -> None:
    for dy, dx in zip(call.all("dy"), call.all("dx"), strict=True):
        conv_fprop(op.problem, dx, dy, call["w0"])


@kernel(DeconvNd, "wgrad", carry=carry_bytes)
def deconvolution_wgrad(op: DeconvNd, call: ReferenceCall) -> None:
    if call.wants("dw0"):
        weight_gradient(op, call, zip(call.all("x"), call.all("dy"), strict=True))
    bias_gradient(op, call, image_frames(op.problem.outer))
