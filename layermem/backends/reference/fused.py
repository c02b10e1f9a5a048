"""Fused ops: the kernels of their layers in turn, over arrays that live for one call."""

from __future__ import annotations

from typing import Any

import numpy as np

from layermem.backends.reference.activation import pack, unpack
from layermem.backends.reference.base import KERNELS, Buffers, kernel
from layermem.backends.reference.normalization import (
    batch_norm_backward,
    batch_norm_forward,
    batch_norm_replay,
    normalized,
    scale_backward,
    spread,
)  # fmt: skip
from layermem.layers.base import roles


def finish(layer: Any, b: Buffers, y: np.ndarray) -> None:
    """Scale, shift and rectify the normalized `y` into the top."""
    scaled = y * spread(b.w3, y) + spread(b.w4, y)
    b.y[...] = np.maximum(scaled, 0) if layer.relu else scaled


def parts(b: Buffers, *roles: str, **others: np.ndarray) -> Buffers:
    """The arrays of some roles of `b`, with others beside them."""
    return Buffers({**{role: getattr(b, role) for role in roles if b.has(role)}, **others}, b.context)


@kernel("BatchNormScale.forward")
def forward(layer: Any, b: Buffers) -> None:
    y = np.empty_like(b.x)
    batch_norm_forward(layer.norm, parts(b, "x0", "w0", "w1", "w2", "mean", "inv_std", y0=y))
    finish(layer, b, y)


@kernel("BatchNormScale.replay")
def replay(layer: Any, b: Buffers) -> None:
    y = np.empty_like(b.x)
    batch_norm_replay(layer.norm, parts(b, "x0", "mean", "inv_std", y0=y))
    finish(layer, b, y)


@kernel("BatchNormScale.backward")
def backward(layer: Any, b: Buffers) -> None:
    y = normalized(b.x, b.mean, b.inv_std)
    dy = b.dy
    if layer.relu:
        dy = np.where(y * spread(b.w3, y) + spread(b.w4, y) > 0, dy, 0)
    between = np.empty_like(y)
    gradients = {f"dw{i}": getattr(b, f"dw{i + 3}") for i in (0, 1) if b.has(f"dw{i + 3}")}
    scale_backward(layer.scale, Buffers({"x0": y, "w0": b.w3, "dy0": dy, "dx0": between, **gradients}))
    if b.has("dx0"):
        batch_norm_backward(layer.norm, parts(b, "x0", "mean", "inv_std", "dx0", dy0=between))


# -- a layer and its ReLU ----------------------------------------------------------------------------------------------


def inner_top(layer: Any, b: Buffers, step: str) -> np.ndarray:
    """The top of the inner layer after its own `step`; what it stashes is in `b` then."""
    inner, y = layer.inner, np.empty_like(b.y)
    given = (*roles("x", len(inner.bottoms)), *roles("w", len(inner.params)), *inner.stash)
    KERNELS[f"{inner.type}.{step}"](inner, parts(b, *given, y0=y))
    return y


def leave(b: Buffers, y: np.ndarray, relu: bool) -> None:
    """`y` or its relu in the top, and the bits that somebody reads."""
    if b.mask is not None:
        b.mask[...] = pack(y > 0)
    b.y[...] = np.maximum(y, 0) if relu else y


@kernel("ConvolutionReLU.forward", "InnerProductReLU.forward", "EltwiseReLU.forward")
def rectified_forward(layer: Any, b: Buffers) -> None:
    leave(b, inner_top(layer, b, "forward"), True)


def passed(b: Buffers) -> np.ndarray:
    """dy where the sum was positive."""
    return np.where(unpack(b.mask, b.dy) if b.has("mask") else b.y > 0, b.dy, 0)


SUMMED = ("Convolution", "InnerProduct", "BatchNormScale")


@kernel(
    "ConvolutionReLU.relu_backward",
    "InnerProductReLU.relu_backward",
    *(f"{kind}SumReLU.relu_backward" for kind in SUMMED),
)
def rectify(layer: Any, b: Buffers) -> None:
    b.dy[...] = passed(b)


def inner_backward(step: str, *kinds: str) -> None:
    """The op `step` of the inner layer reads a dy that is rectified by now."""

    @kernel(*(f"{kind}.{step}" for kind in kinds))
    def run(layer: Any, b: Buffers) -> None:
        KERNELS[f"{layer.inner.type}.{step}"](layer.inner, b)


for product in ("Convolution", "InnerProduct"):
    for step in ("wgrad", "dgrad"):
        inner_backward(step, f"{product}ReLU", f"{product}Sum", f"{product}SumReLU")
inner_backward("backward", "BatchNormScaleSum", "BatchNormScaleSumReLU")


@kernel("EltwiseReLU.backward")
def eltwise_backward(layer: Any, b: Buffers) -> None:
    wanted = [role for role in roles("dx", len(layer.bottoms)) if b.has(role)]
    KERNELS["Eltwise.backward"](layer.inner, parts(b, *wanted, dy0=passed(b)))


# -- a layer, the sum with another blob, and maybe its ReLU ------------------------------------------------------------


@kernel(*(f"{kind}Sum{relu}.forward" for kind in SUMMED for relu in ("", "ReLU")))
def summed_forward(layer: Any, b: Buffers) -> None:
    leave(b, inner_top(layer, b, "forward") + b.x1, layer.relu)


@kernel("BatchNormScaleSum.replay", "BatchNormScaleSumReLU.replay")
def summed_replay(layer: Any, b: Buffers) -> None:
    leave(b, inner_top(layer, b, "replay") + b.x1, layer.relu)


@kernel(*(f"{kind}Sum{relu}.residual_backward" for kind in SUMMED for relu in ("", "ReLU")))
def backward_sum(layer: Any, b: Buffers) -> None:
    b.dx1[...] = b.dy
