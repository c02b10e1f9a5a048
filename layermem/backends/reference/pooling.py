"""Pooling: windows of a padded image, looked at tap by tap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from layermem.backends.reference.base import Buffers, kernel


def taps(layer: Any) -> Iterator[tuple[int, tuple[slice, slice]]]:
    """(index, slices): element `index` of every window at once, in an image padded so that no window is clipped."""
    rows, columns = layer.windows
    _, _, ho, wo = layer.tops[0].shape
    for r in range(rows.kernel):
        for s in range(columns.kernel):
            down = slice(r, r + (ho - 1) * rows.stride + 1, rows.stride)
            right = slice(s, s + (wo - 1) * columns.stride + 1, columns.stride)
            yield r * columns.kernel + s, (down, right)


def canvas(layer: Any, fill: float, dtype: Any) -> tuple[np.ndarray, tuple[slice, slice]]:
    """An empty image that holds every window whole, and where in it x lies."""
    n, c = layer.bottoms[0].shape[:2]
    sizes = [
        max((out - 1) * window.stride + window.kernel, window.pad + window.size)
        for window, out in zip(layer.windows, layer.tops[0].shape[2:], strict=True)
    ]
    inside = tuple(slice(window.pad, window.pad + window.size) for window in layer.windows)
    return np.full((n, c, *sizes), fill, dtype), inside  # type: ignore[return-value]


def divisors(layer: Any) -> np.ndarray:
    """[Ho,Wo]: elements of each window, clipped to the padded image as Caffe counts them."""
    counts = []
    for window, out in zip(layer.windows, layer.tops[0].shape[2:], strict=True):
        start = np.arange(out) * window.stride - window.pad
        counts.append(np.minimum(start + window.kernel, window.size + window.pad) - start)
    return np.outer(*counts)


@kernel("Pooling.forward")
def forward(layer: Any, b: Buffers) -> None:
    if layer.method == "AVE":
        image, inside = canvas(layer, 0, b.x.dtype)
        image[(..., *inside)] = b.x
        total = np.zeros(b.y.shape, b.y.dtype)
        for _, at in taps(layer):
            total += image[(..., *at)]
        b.y[...] = total / divisors(layer).astype(b.y.dtype)
        return
    image, inside = canvas(layer, -np.inf, b.x.dtype)
    image[(..., *inside)] = b.x
    best = np.full(b.y.shape, -np.inf, b.y.dtype)
    argmax = np.zeros(b.y.shape, np.int32)
    for index, at in taps(layer):
        larger = image[(..., *at)] > best
        best[larger] = image[(..., *at)][larger]
        argmax[larger] = index
    b.y[...] = best
    if b.argmax is not None:
        b.argmax[...] = argmax


@kernel("Pooling.backward")
def backward(layer: Any, b: Buffers) -> None:
    image, inside = canvas(layer, 0, b.dy.dtype)
    share = b.dy / divisors(layer).astype(b.dy.dtype) if layer.method == "AVE" else b.dy
    for index, at in taps(layer):
        image[(..., *at)] += share if layer.method == "AVE" else np.where(b.argmax == index, share, 0)
    b.dx[...] = image[(..., *inside)]
