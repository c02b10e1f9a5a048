"""Pointwise functions: y = f(x) and dx = dy f'(.), with the derivative computed from x or y, as the op declares."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from layermem.backends.reference.base import (
    Array,
    ReferenceCall,
    axes_of_caffe,
    double_sum,
    kernel,
    stored,
    sum_of_items,
)
from layermem.ops import Kind, Pointwise, PReLU, ReluMask

Function = Callable[[Pointwise, Array], Array | float]


def sigmoid(x: Array) -> Array:
    return 0.5 * np.tanh(0.5 * x) + 0.5  # never overflows


def power(op: Pointwise, x: Array) -> Array:
    base: Array = op.gamma + op.beta * x
    return base if op.alpha == 1 else np.power(base, op.alpha)


def power_slope(op: Pointwise, x: Array) -> Array:
    base = op.gamma + op.beta * x
    return op.alpha * op.beta * (base if op.alpha == 2 else np.power(base, op.alpha - 1))


def swish_slope(op: Pointwise, x: Array) -> Array | float:
    s = sigmoid(op.alpha * x)
    slope: Array = s + op.alpha * x * s * (1 - s)
    return slope


# f(op, x), and f'(op, x) or f'(op, y): layermem/ops/activation.py lists what backward reads
FUNCTIONS: dict[Kind, tuple[Function, Function]] = {
    Kind.ELU: (
        lambda op, x: np.where(x > 0, x, op.alpha * np.expm1(np.minimum(x, 0))),
        lambda op, x: np.where(x > 0, 1, op.alpha * np.exp(np.minimum(x, 0))),
    ),
    Kind.SIGMOID: (lambda op, x: sigmoid(x), lambda op, y: y * (1 - y)),
    Kind.TANH: (lambda op, x: np.tanh(x), lambda op, y: 1 - y * y),
    Kind.ABSVAL: (lambda op, x: np.abs(x), lambda op, x: np.sign(x)),
    Kind.POWER: (power, power_slope),
    Kind.EXP: (lambda op, x: op.beta * np.exp(op.alpha * x), lambda op, y: op.alpha * y),
    Kind.LOG: (
        lambda op, x: op.gamma * np.log(op.beta + op.alpha * x),
        lambda op, x: op.gamma * op.alpha / (op.beta + op.alpha * x),
    ),
    Kind.BNLL: (lambda op, x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), lambda op, x: sigmoid(x)),
    Kind.SWISH: (lambda op, x: x * sigmoid(op.alpha * x), swish_slope),
    Kind.THRESHOLD: (lambda op, x: x > op.alpha, lambda op, x: np.zeros_like(x)),
    Kind.RELU: (
        lambda op, x: np.where(x > 0, x, op.alpha * x) if op.alpha else np.maximum(x, 0),
        lambda op, x: np.where(x > 0, 1, op.alpha),
    ),
    Kind.CLIP: (lambda op, x: np.clip(x, op.alpha, op.beta), lambda op, x: (x >= op.alpha) & (x <= op.beta)),
}


@kernel(Pointwise, "forward")
def pointwise_forward(op: Pointwise, call: ReferenceCall) -> None:
    function, slope = FUNCTIONS[op.kind]
    x = call["x0"]
    if "mask" in call:  # before y, which may overlay x; set where the slope is 1
        call["mask"][...] = pack(x > 0 if op.kind is Kind.RELU else np.asarray(slope(op, x)))
    call["y0"][...] = function(op, x)


@kernel(Pointwise, "backward")
def pointwise_backward(op: Pointwise, call: ReferenceCall) -> None:
    dy = call["dy0"]
    if op.kind in (Kind.RELU, Kind.CLIP):  # a selection, not a product: gives 0 even if dy is not finite
        outside = op.alpha * dy if op.kind is Kind.RELU and op.alpha else 0
        call["dx0"][...] = np.where(_slope_is_one(op, call), dy, outside)
    elif op.has_constant_slope:
        call["dx0"][...] = dy * (op.alpha * op.beta)
    else:
        slope = FUNCTIONS[op.kind][1]
        call["dx0"][...] = dy * slope(op, call["y0"] if "y0" in call else call["x0"])


def _slope_is_one(op: Pointwise, call: ReferenceCall) -> Array:
    """The elements at which a RELU or CLIP passes dy on, from the declared one of mask, y0 and x0."""
    if "mask" in call:
        return unpack(call["mask"], call["dy0"])
    source = call["y0"] if "y0" in call else call["x0"]
    return source > 0 if op.kind is Kind.RELU else (source >= op.alpha) & (source <= op.beta)


# -- one bit per element -----------------------------------------------------------------------------------------------


def pack(where: Array) -> Array:
    return np.packbits(stored(where), bitorder="little")


def unpack(mask: Array, like: Array) -> Array:
    """Unpack a mask to booleans with the axes of `like`."""
    memory = stored(like)
    where = np.unpackbits(mask, count=like.size, bitorder="little").astype(bool).reshape(memory.shape)
    return axes_of_caffe(where)


@kernel(ReluMask, "relu_backward")
def relu_backward(op: ReluMask, call: ReferenceCall) -> None:
    call["dy0"][...] = apply_relu_mask(call)


def apply_relu_mask(call: ReferenceCall) -> Array:
    """dy where the ReLU's output is positive, else 0."""
    dy = call["dy0"]
    return np.where(unpack(call["mask"], dy) if "mask" in call else call["y0"] > 0, dy, 0)


# -- with a learned slope ----------------------------------------------------------------------------------------------


def slopes(op: PReLU, w: Array) -> Array:
    """w in a shape that multiplies x: a scalar, or along axis 1."""
    return w if op.shared else w.reshape(-1, *(1,) * (len(op.x.shape) - 2))


@kernel(PReLU, "forward")
def prelu_forward(op: PReLU, call: ReferenceCall) -> None:
    x = call["x0"]
    call["y0"][...] = np.where(x > 0, x, slopes(op, call["w0"]) * x)


@kernel(PReLU, "backward", carry=lambda op, role: 8 * (1 if op.shared else op.x.shape[1]))
def prelu_backward(op: PReLU, call: ReferenceCall) -> None:
    x, dy = call["x0"], call["dy0"]
    if call.wants("dw0"):  # before dx, which may overlay x or dy
        part = np.where(x > 0, 0, dy * x)
        others = tuple(axis for axis in range(part.ndim - 1) if op.shared or axis != 0)
        shape = () if op.shared else part.shape[1:2]
        total = sum_of_items(op, call, "dw0", shape, np.float64, (double_sum(item, others) for item in part))
        if "dw0" in call:
            call["dw0"][...] = total.reshape(call["dw0"].shape)
    if "dx0" in call:
        call["dx0"][...] = np.where(x > 0, dy, slopes(op, call["w0"]) * dy)
