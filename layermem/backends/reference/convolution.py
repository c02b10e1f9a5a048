"""Convolution and Deconvolution: three sums over windows, of which each layer uses all, in different roles.

With image [N,H,W,C], window values out [N,Ho,Wo,K] and weights [K,kh,kw,C] per group, and p the place in the image
under tap t of window o:

    correlate   out[o] = sum_t image[p] w[t]        Convolution forward      Deconvolution data gradient
    spread      image[p] += out[o] w[t]             Convolution data grad.   Deconvolution forward
    weigh       dw[t] = sum_o out[o] image[p]       both weight gradients

The first and the last lay out windows as rows of a matrix (im2col), a few images at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from layermem.backends.reference.base import Buffers, kernel

AT_ONCE = 1 << 22  # elements of a window matrix; the cut depends on shapes alone, so sums have one order


def stored(array: np.ndarray) -> np.ndarray:
    """[N,C,H,W] as it lies in memory: [N,H,W,C]."""
    return array.transpose(0, 2, 3, 1)


def taps(layer: Any) -> Iterator[tuple[int, int, slice, slice]]:
    """(r, s, rows, columns): where tap (r, s) of every window lies in the padded image."""
    down, right = layer.windows
    for r in range(down.kernel):
        for s in range(right.kernel):
            yield r, s, under(down, r), under(right, s)


def under(window: Any, tap: int) -> slice:
    start = tap * window.dilation
    return slice(start, start + (window.floor_out - 1) * window.stride + 1, window.stride)


def padded(layer: Any, image: np.ndarray) -> np.ndarray:
    down, right = layer.windows
    if not down.pad and not right.pad:
        return image
    return np.pad(image, ((0, 0), (down.pad, down.pad), (right.pad, right.pad), (0, 0)))


def window_rows(layer: Any, image: np.ndarray) -> np.ndarray:
    """[g, N*Ho*Wo, kh*kw*C/g]: the image under each window, a row a window."""
    down, right = layer.windows
    n, channels = image.shape[0], image.shape[3]
    image = padded(layer, image)
    shape = (layer.group, n, down.floor_out, right.floor_out, down.kernel, right.kernel, channels // layer.group)
    matrix = np.empty(shape, image.dtype)
    for r, s, rows, columns in taps(layer):
        matrix[..., r, s, :] = by_group(layer, image[:, rows, columns])
    return matrix.reshape(layer.group, n * down.floor_out * right.floor_out, -1)


def by_group(layer: Any, array: np.ndarray) -> np.ndarray:
    """[N,H,W,C] -> [g,N,H,W,C/g]"""
    n, h, w, channels = array.shape
    return np.moveaxis(array.reshape(n, h, w, layer.group, channels // layer.group), 3, 0)


def value_rows(layer: Any, out: np.ndarray) -> np.ndarray:
    """[N,Ho,Wo,K] -> [g, N*Ho*Wo, K/g]"""
    return by_group(layer, out).reshape(layer.group, -1, out.shape[3] // layer.group)


def weight_rows(layer: Any, weights: np.ndarray) -> np.ndarray:
    """(K, C/g, kh, kw) -> [g, K/g, kh*kw*C/g]"""
    return stored(weights).reshape(layer.group, weights.shape[0] // layer.group, -1)


def portions(layer: Any, images: int) -> Iterator[slice]:
    down, right = layer.windows
    row = layer.group * layer.params[0].tensor.count // layer.params[0].tensor.shape[0]
    step = max(1, AT_ONCE // (down.floor_out * right.floor_out * row))
    return (slice(start, min(start + step, images)) for start in range(0, images, step))


def correlate(layer: Any, image: np.ndarray, weights: np.ndarray, out: np.ndarray) -> None:
    w = weight_rows(layer, weights).transpose(0, 2, 1)
    for part in portions(layer, image.shape[0]):
        values = window_rows(layer, image[part]) @ w
        n, ho, wo, channels = out[part].shape
        out[part] = np.moveaxis(values.reshape(layer.group, n, ho, wo, -1), 0, 3).reshape(n, ho, wo, channels)


def spread(layer: Any, out: np.ndarray, weights: np.ndarray, image: np.ndarray) -> None:
    down, right = layer.windows
    n, height, width, channels = image.shape
    values = value_rows(layer, out)
    w = stored(weights).reshape(layer.group, values.shape[2], down.kernel, right.kernel, -1)
    total = np.zeros((n, height + 2 * down.pad, width + 2 * right.pad, channels), image.dtype)
    for r, s, rows, columns in taps(layer):
        tap = (values @ w[:, :, r, s]).reshape(layer.group, n, down.floor_out, right.floor_out, -1)
        total[:, rows, columns] += np.moveaxis(tap, 0, 3).reshape(n, down.floor_out, right.floor_out, channels)
    image[...] = total[:, down.pad : down.pad + height, right.pad : right.pad + width]


def weigh(layer: Any, image: np.ndarray, out: np.ndarray) -> np.ndarray:
    """The gradient that one pair gives to the weights, in their stored shape."""
    k, c, kh, kw = layer.params[0].tensor.shape
    total = np.zeros((layer.group, k // layer.group, kh * kw * c), out.dtype)
    for part in portions(layer, image.shape[0]):
        total += value_rows(layer, out[part]).transpose(0, 2, 1) @ window_rows(layer, image[part])
    return total.reshape(k, kh, kw, c)


def write_bias_gradient(b: Buffers) -> None:
    if b.has("dw1"):
        b.dw1[...] = sum(dy.sum(axis=(0, 2, 3), dtype=np.float64) for dy in b.dys)


@kernel("Convolution.forward")
def convolution_forward(layer: Any, b: Buffers) -> None:
    for x, y in zip(b.xs, b.ys, strict=True):
        correlate(layer, stored(x), b.w0, stored(y))
        if layer.has_bias:
            stored(y)[...] += b.w1


@kernel("Convolution.wgrad")
def convolution_backward_weights(layer: Any, b: Buffers) -> None:
    if b.has("dw0"):
        stored(b.dw0)[...] = sum(weigh(layer, stored(x), stored(dy)) for x, dy in zip(b.xs, b.dys, strict=True))
    write_bias_gradient(b)


@kernel("Convolution.dgrad")
def convolution_backward_data(layer: Any, b: Buffers) -> None:
    for dy, dx in zip(b.dys, b.dxs, strict=True):
        spread(layer, stored(dy), b.w0, stored(dx))


@kernel("Deconvolution.forward")
def deconvolution_forward(layer: Any, b: Buffers) -> None:
    for x, y in zip(b.xs, b.ys, strict=True):
        spread(layer, stored(x), b.w0, stored(y))
        if layer.has_bias:
            stored(y)[...] += b.w1


@kernel("Deconvolution.wgrad")
def deconvolution_backward_weights(layer: Any, b: Buffers) -> None:
    if b.has("dw0"):
        stored(b.dw0)[...] = sum(weigh(layer, stored(dy), stored(x)) for x, dy in zip(b.xs, b.dys, strict=True))
    write_bias_gradient(b)


@kernel("Deconvolution.dgrad")
def deconvolution_backward_data(layer: Any, b: Buffers) -> None:
    for dy, dx in zip(b.dys, b.dxs, strict=True):
        correlate(layer, stored(dy), b.w0, stored(dx))
