"""Activations: y = f(x) and dx = dy f'(.), the derivative taken from whichever of x and y the layer reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from layermem.backends.reference.base import Buffers, axes_of_caffe, kernel, stored

Function = Callable[[Any, np.ndarray], Any]


def value(name: str) -> Callable[[Function], Function]:
    """Register f(layer, x) as the forward kernel of `name`."""

    def register(f: Function) -> Function:
        @kernel(f"{name}.forward")
        def forward(layer: Any, b: Buffers) -> None:
            b.y[...] = f(layer, b.x)

        return f

    return register


def derivative(name: str) -> Callable[[Function], Function]:
    """Register f'(layer, x or y) as the factor between dy and dx in the backward kernel of `name`."""

    def register(f: Function) -> Function:
        @kernel(f"{name}.backward")
        def backward(layer: Any, b: Buffers) -> None:
            source = b.y if b.has("y0") else b.x if b.has("x0") else b.dy
            b.dx[...] = b.dy * f(layer, source)

        return f

    return register


# -- with a stash of one bit per element ---------------------------------------------------------------------------


def pack(where: np.ndarray) -> np.ndarray:
    return np.packbits(stored(where), bitorder="little")


def unpack(mask: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Booleans with the axes of `like`."""
    memory = stored(like)
    where = np.unpackbits(mask, count=like.size, bitorder="little").astype(bool).reshape(memory.shape)
    return axes_of_caffe(where)


@kernel("ReLU.forward")
def relu_forward(layer: Any, b: Buffers) -> None:
    if b.mask is not None:  # before y, which may lie on x
        b.mask[...] = pack(b.x > 0)
    slope = layer.negative_slope
    b.y[...] = np.where(b.x > 0, b.x, slope * b.x) if slope else np.maximum(b.x, 0)


@kernel("ReLU.backward")
def relu_backward(layer: Any, b: Buffers) -> None:
    if b.mask is not None:
        positive = unpack(b.mask, b.dy)
    else:
        positive = (b.y if b.has("y0") else b.x) > 0
    b.dx[...] = np.where(positive, b.dy, layer.negative_slope * b.dy if layer.negative_slope else 0)


def inside(layer: Any, x: np.ndarray) -> np.ndarray:
    return (x >= layer.min) & (x <= layer.max)


@kernel("Clip.forward")
def clip_forward(layer: Any, b: Buffers) -> None:
    if b.mask is not None:
        b.mask[...] = pack(inside(layer, b.x))
    b.y[...] = np.clip(b.x, layer.min, layer.max)


@kernel("Clip.backward")
def clip_backward(layer: Any, b: Buffers) -> None:
    passes = unpack(b.mask, b.dy) if b.mask is not None else inside(layer, b.x)
    b.dx[...] = np.where(passes, b.dy, 0)


# -- with a learned slope --------------------------------------------------------------------------------------------


def slopes(layer: Any, w: np.ndarray) -> np.ndarray:
    """w as it multiplies x: a scalar, or along axis 1."""
    return w if layer.shared else w.reshape(-1, *(1,) * (len(layer.bottoms[0].shape) - 2))


@kernel("PReLU.forward")
def prelu_forward(layer: Any, b: Buffers) -> None:
    b.y[...] = np.where(b.x > 0, b.x, slopes(layer, b.w) * b.x)


@kernel("PReLU.backward")
def prelu_backward(layer: Any, b: Buffers) -> None:
    if b.has("dw0"):  # before dx, which may lie on x or dy
        part = np.where(b.x > 0, 0, b.dy * b.x)
        others = tuple(axis for axis in range(part.ndim) if layer.shared or axis != 1)
        b.dw[...] = part.sum(axis=others)
    if b.has("dx0"):
        b.dx[...] = np.where(b.x > 0, b.dy, slopes(layer, b.w) * b.dy)


# -- without state -----------------------------------------------------------------------------------------------


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * np.tanh(0.5 * x) + 0.5  # never overflows


@value("ELU")
def elu(layer: Any, x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, layer.alpha * np.expm1(np.minimum(x, 0)))


@derivative("ELU")
def elu_slope(layer: Any, x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, 1, layer.alpha * np.exp(np.minimum(x, 0)))


@value("Sigmoid")
def sigmoid_value(layer: Any, x: np.ndarray) -> np.ndarray:
    return sigmoid(x)


@derivative("Sigmoid")
def sigmoid_slope(layer: Any, y: np.ndarray) -> np.ndarray:
    return y * (1 - y)


@value("TanH")
def tanh(layer: Any, x: np.ndarray) -> np.ndarray:
    return np.tanh(x)


@derivative("TanH")
def tanh_slope(layer: Any, y: np.ndarray) -> np.ndarray:
    return 1 - y * y


@value("AbsVal")
def absval(layer: Any, x: np.ndarray) -> np.ndarray:
    return np.abs(x)


@derivative("AbsVal")
def absval_slope(layer: Any, x: np.ndarray) -> np.ndarray:
    return np.sign(x)


@value("Power")
def power(layer: Any, x: np.ndarray) -> np.ndarray:
    base = layer.shift + layer.scale * x
    return base if layer.power == 1 else np.power(base, layer.power)


@derivative("Power")
def power_slope(layer: Any, x: np.ndarray) -> Any:
    if layer.power in (0, 1) or layer.scale == 0:  # linear: x is not read
        return layer.power * layer.scale
    base = layer.shift + layer.scale * x
    return layer.power * layer.scale * (base if layer.power == 2 else np.power(base, layer.power - 1))


@value("Exp")
def exp(layer: Any, x: np.ndarray) -> np.ndarray:
    return layer.outer * np.exp(layer.inner * x)


@derivative("Exp")
def exp_slope(layer: Any, y: np.ndarray) -> np.ndarray:
    return layer.inner * y


@value("Log")
def log(layer: Any, x: np.ndarray) -> np.ndarray:
    return layer.factor * np.log(layer.shift + layer.scale * x)


@derivative("Log")
def log_slope(layer: Any, x: np.ndarray) -> np.ndarray:
    return layer.factor * layer.scale / (layer.shift + layer.scale * x)


@value("BNLL")
def bnll(layer: Any, x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


@derivative("BNLL")
def bnll_slope(layer: Any, x: np.ndarray) -> np.ndarray:
    return sigmoid(x)


@value("Swish")
def swish(layer: Any, x: np.ndarray) -> np.ndarray:
    return x * sigmoid(layer.beta * x)


@derivative("Swish")
def swish_slope(layer: Any, x: np.ndarray) -> np.ndarray:
    s = sigmoid(layer.beta * x)
    return s + layer.beta * x * s * (1 - s)


@value("Threshold")
def threshold(layer: Any, x: np.ndarray) -> np.ndarray:
    return x > layer.threshold
