"""ConvNd and DeconvNd: each tap of a window combines one slice of the image with the maps.

With image [axes of frames, N, H, W, C] and maps likewise, and s(t) the slices of the padded image under tap t of every
window (layermem/ops/convolution.py):

    conv_fprop   maps = sum_t image[s(t)] filter[t]          ConvNd forward     DeconvNd dgrad
    conv_dgrad   image[s(t)] += maps filter[t]               ConvNd dgrad       DeconvNd forward
    conv_wgrad   dfilter[t] = sum_o maps[o] image[s(t)][o]   wgrad of both
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from layermem.backends.reference.base import Array, ReferenceCall, kernel, stored
from layermem.backends.reference.convolution import bias_gradient, under
from layermem.ops import ConvNd, ConvNdProblem, DeconvNd, Window


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
    """[.., C] -> [g, positions, C/g]"""
    return array.reshape(-1, problem.groups, array.shape[-1] // problem.groups).transpose(1, 0, 2)


def filter_taps(problem: ConvNdProblem, weights: Array) -> Array:
    """View (K, C/g, taps, kw) as [g, K/g, taps kw, C/g]."""
    k, c = problem.k // problem.groups, problem.c // problem.groups
    return stored(weights).reshape(problem.groups, k, -1, c)


def conv_fprop(problem: ConvNdProblem, maps: Array, image: Array, weights: Array) -> None:
    padded, filters = np.pad(axes_of_image(problem, image), pads(problem)), filter_taps(problem, weights)
    y = axes_of_maps(problem, maps)
    total = np.zeros((problem.groups, y.size // problem.k, problem.k // problem.groups), y.dtype)
    for tap, slices in taps(problem):
        total += by_group(problem, padded[slices]) @ filters[:, :, tap].transpose(0, 2, 1)
    y[...] = total.transpose(1, 0, 2).reshape(y.shape)


def conv_dgrad(problem: ConvNdProblem, image: Array, maps: Array, weights: Array) -> None:
    x, filters = axes_of_image(problem, image), filter_taps(problem, weights)
    values = by_group(problem, axes_of_maps(problem, maps))
    total = np.zeros([size + before + after for size, (before, after) in zip(x.shape, pads(problem))], x.dtype)
    for tap, slices in taps(problem):
        part = total[slices]
        part += (values @ filters[:, :, tap]).transpose(1, 0, 2).reshape(part.shape)
    x[...] = total[tuple(slice(before, before + size) for size, (before, _) in zip(x.shape, pads(problem)))]


def conv_wgrad(problem: ConvNdProblem, maps: Array, image: Array) -> Array:
    """The gradient of the weights from one pair of bottom and top, in their stored shape."""
    padded, values = np.pad(axes_of_image(problem, image), pads(problem)), axes_of_maps(problem, maps)
    k, c, height, width = problem.filter.shape
    gradient = np.empty((k, height, width, c), maps.dtype)
    filters = gradient.reshape(problem.groups, k // problem.groups, height * width, c)
    by_output = by_group(problem, values).transpose(0, 2, 1)
    for tap, slices in taps(problem):
        filters[:, :, tap] = by_output @ by_group(problem, padded[slices])
    return gradient


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


@kernel(ConvNd, "wgrad")
def convolution_wgrad(op: ConvNd, call: ReferenceCall) -> None:
    if "dw0" in call:
        pairs = zip(call.all("x"), call.all("dy"), strict=True)
        stored(call["dw0"])[...] = sum(conv_wgrad(op.problem, dy, x) for x, dy in pairs)
    bias_gradient(op, call)


@kernel(DeconvNd, "forward")
def deconvolution_fprop(op: DeconvNd, call: ReferenceCall) -> None:
    for x, y in zip(call.all("x"), call.all("y"), strict=True):
        conv_dgrad(op.problem, y, x, call["w0"])
        add_bias(call, y)


@kernel(DeconvNd, "dgrad")
def deconvolution_dgrad(op: DeconvNd, call: ReferenceCall) -> None:
    for dy, dx in zip(call.all("dy"), call.all("dx"), strict=True):
        conv_fprop(op.problem, dx, dy, call["w0"])


@kernel(DeconvNd, "wgrad")
def deconvolution_wgrad(op: DeconvNd, call: ReferenceCall) -> None:
    if "dw0" in call:
        pairs = zip(call.all("x"), call.all("dy"), strict=True)
        stored(call["dw0"])[...] = sum(conv_wgrad(op.problem, x, dy) for x, dy in pairs)
    bias_gradient(op, call)
