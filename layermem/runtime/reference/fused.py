"""BatchNorm, Scale and ReLU at once: the three kernels in turn, over arrays that live for one call."""

from __future__ import annotations

from typing import Any

import numpy as np

from layermem.runtime.reference.base import Buffers, kernel
from layermem.runtime.reference.normalization import (
    batch_norm_backward,
    batch_norm_forward,
    batch_norm_replay,
    normalized,
    scale_backward,
    spread,
)  # fmt: skip


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
