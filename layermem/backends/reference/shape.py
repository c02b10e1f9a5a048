"""Shape layers: copies between Caffe's axes.  A copy onto itself is left out, so that a view costs nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from layermem.backends.reference.base import Buffers, kernel


def copy(into: np.ndarray, source: np.ndarray) -> None:
    """The elements of `source` in Caffe's order, under the axes of `into`."""
    if into.__array_interface__["data"][0] != source.__array_interface__["data"][0]:
        into[...] = source.reshape(into.shape)


def part(layer: Any, whole: np.ndarray, start: int, size: int) -> np.ndarray:
    return whole[(slice(None),) * layer.along + (slice(start, start + size),)]


@kernel("Concat.forward")
def concat_forward(layer: Any, b: Buffers) -> None:
    for start, x in zip(layer.starts, b.xs, strict=True):
        copy(part(layer, b.y, start, x.shape[layer.along]), x)


@kernel("Concat.backward")
def concat_backward(layer: Any, b: Buffers) -> None:
    for i, start in enumerate(layer.starts):
        if b.has(f"dx{i}"):
            dx = getattr(b, f"dx{i}")
            copy(dx, part(layer, b.dy, start, dx.shape[layer.along]))


@kernel("Slice.forward")
def slice_forward(layer: Any, b: Buffers) -> None:
    for start, y in zip(layer.starts, b.ys, strict=True):
        copy(y, part(layer, b.x, start, y.shape[layer.along]))


@kernel("Slice.backward")
def slice_backward(layer: Any, b: Buffers) -> None:
    for start, dy in zip(layer.starts, b.dys, strict=True):
        copy(part(layer, b.dx, start, dy.shape[layer.along]), dy)


@kernel("Split.forward")
def split_forward(layer: Any, b: Buffers) -> None:
    for y in b.ys:
        copy(y, b.x)


@kernel("Split.backward")
def split_backward(layer: Any, b: Buffers) -> None:
    total, *others = b.dys
    for dy in others:
        total = total + dy
    copy(b.dx, total)


@kernel("Flatten.forward")
@kernel("Reshape.forward")
def renamed_forward(layer: Any, b: Buffers) -> None:
    copy(b.y, b.x)


@kernel("Flatten.backward")
@kernel("Reshape.backward")
def renamed_backward(layer: Any, b: Buffers) -> None:
    copy(b.dx, b.dy)


@kernel("Tile.forward")
def tile_forward(layer: Any, b: Buffers) -> None:
    size = b.x.shape[layer.along]
    for i in range(layer.tiles):
        copy(part(layer, b.y, i * size, size), b.x)


@kernel("Tile.backward")
def tile_backward(layer: Any, b: Buffers) -> None:
    size = b.dx.shape[layer.along]
    total = part(layer, b.dy, 0, size)
    for i in range(1, layer.tiles):
        total = total + part(layer, b.dy, i * size, size)
    b.dx[...] = total


@kernel("Silence.forward")
def silence(layer: Any, b: Buffers) -> None:
    pass
