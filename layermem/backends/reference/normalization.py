"""LRN, BatchNorm, Scale and Bias.  Long sums run in double precision, whatever the blobs are."""

from __future__ import annotations

from typing import Any

import numpy as np

from layermem.backends.reference.base import Buffers, kernel

# ---- LRN -----------------------------------------------------------------------------------------------------------


def sum_along(a: np.ndarray, axis: int, size: int) -> np.ndarray:
    """The sum of the `size` elements around each one, zero beyond the border."""
    along, total = np.moveaxis(a, axis, 0), np.zeros_like(a)
    into, length = np.moveaxis(total, axis, 0), a.shape[axis]
    for shift in range(-(size // 2), size // 2 + 1):
        first, last = max(0, -shift), length - max(0, shift)
        if first < last:
            into[first:last] += along[first + shift : last + shift]
    return total


def sum_around(layer: Any, a: np.ndarray) -> np.ndarray:
    if layer.across:
        return sum_along(a, 1, layer.size)
    return sum_along(sum_along(a, 2, layer.size), 3, layer.size)


def lrn_scale(layer: Any, x: np.ndarray) -> np.ndarray:
    return layer.shift + layer.share * sum_around(layer, x * x)


@kernel("LRN.forward")
def lrn_forward(layer: Any, b: Buffers) -> None:
    b.y[...] = b.x * lrn_scale(layer, b.x) ** -layer.beta


@kernel("LRN.backward")
def lrn_backward(layer: Any, b: Buffers) -> None:
    # dx = dy s^-beta - 2 share beta x sum_around(dy x s^(-beta-1))
    scale = lrn_scale(layer, b.x)
    direct = b.dy * scale**-layer.beta
    b.dx[...] = direct - 2 * layer.share * layer.beta * b.x * sum_around(layer, direct * b.x / scale)


# ---- BatchNorm -----------------------------------------------------------------------------------------------------


def channel_mean(a: np.ndarray) -> np.ndarray:
    """[C] in double precision."""
    return a.mean(axis=tuple(i for i in range(a.ndim) if i != 1), dtype=np.float64)


def spread(values: np.ndarray, like: np.ndarray) -> np.ndarray:
    """[C] -> [1,C,1,..] in the type of `like`."""
    return values.astype(like.dtype).reshape(1, -1, *(1,) * (like.ndim - 2))


def normalized(x: np.ndarray, mean: np.ndarray, inv_std: np.ndarray) -> np.ndarray:
    return (x - spread(mean, x)) * spread(inv_std, x)


def global_inv_std(layer: Any, b: Buffers) -> np.ndarray:
    return 1 / np.sqrt(b.w1 * global_factor(b) + layer.eps)


def global_factor(b: Buffers) -> Any:
    """What turns the sums into averages; before the first training step there are none, and Caffe takes 0."""
    return 1 / b.w2[0] if b.w2[0] else 0.0


@kernel("BatchNorm.forward")
def batch_norm_forward(layer: Any, b: Buffers) -> None:
    if layer.global_stats:
        b.y[...] = normalized(b.x, b.w0 * global_factor(b), global_inv_std(layer, b))
        return
    mean = channel_mean(b.x).astype(b.x.dtype)  # rounded here, so that a replay starts from the same bits
    variance = channel_mean((b.x - spread(mean, b.x)) ** 2)
    inv_std = (1 / np.sqrt(variance + layer.eps)).astype(b.x.dtype)
    unbiased = layer.per_channel / (layer.per_channel - 1) if layer.per_channel > 1 else 1.0
    b.w0[...] = layer.fraction * b.w0 + mean
    b.w1[...] = layer.fraction * b.w1 + unbiased * variance
    b.w2[...] = layer.fraction * b.w2 + 1
    for stash, value in ((b.mean, mean), (b.inv_std, inv_std)):
        if stash is not None:
            stash[...] = value
    b.y[...] = normalized(b.x, mean, inv_std)


@kernel("BatchNorm.replay")
def batch_norm_replay(layer: Any, b: Buffers) -> None:
    b.y[...] = normalized(b.x, b.mean, b.inv_std)


@kernel("BatchNorm.backward")
def batch_norm_backward(layer: Any, b: Buffers) -> None:
    if layer.global_stats:
        b.dx[...] = b.dy * spread(global_inv_std(layer, b), b.dy)
        return
    # dx = (dy - mean(dy) - y mean(dy y)) / std
    y = normalized(b.x, b.mean, b.inv_std)
    centred = b.dy - spread(channel_mean(b.dy), y)
    b.dx[...] = (centred - y * spread(channel_mean(b.dy * y), y)) * spread(b.inv_std, y)


# ---- Scale and Bias ------------------------------------------------------------------------------------------------


def spanning(layer: Any, b: Buffers, role: str) -> np.ndarray:
    return getattr(b, role).reshape(layer.view)


def write_sum(layer: Any, place: np.ndarray, a: np.ndarray) -> None:
    """Sum `a`, shaped like x, over the axes that `place` does not span."""
    place[...] = a.sum(axis=layer.summed, dtype=np.float64).reshape(place.shape)


@kernel("Scale.forward")
def scale_forward(layer: Any, b: Buffers) -> None:
    y = b.x0 * spanning(layer, b, layer.operand)
    if layer.bias:
        y += spanning(layer, b, layer.bias)
    b.y[...] = y


@kernel("Scale.backward")
def scale_backward(layer: Any, b: Buffers) -> None:
    if b.has(f"d{layer.operand}"):
        write_sum(layer, getattr(b, f"d{layer.operand}"), b.dy * b.x0)
    if b.has(f"d{layer.bias}"):
        write_sum(layer, getattr(b, f"d{layer.bias}"), b.dy)
    if b.has("dx0"):  # last: it may lie over dy or x
        b.dx0[...] = b.dy * spanning(layer, b, layer.operand)


@kernel("Bias.forward")
def bias_forward(layer: Any, b: Buffers) -> None:
    b.y[...] = b.x0 + spanning(layer, b, layer.operand)


@kernel("Bias.backward")
def bias_backward(layer: Any, b: Buffers) -> None:
    if b.has(f"d{layer.operand}"):
        write_sum(layer, getattr(b, f"d{layer.operand}"), b.dy)
    if b.has("dx0"):
        b.dx0[...] = b.dy
