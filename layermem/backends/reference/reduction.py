"""Reduction and ArgMax."""

from __future__ import annotations

from typing import Any

import numpy as np

from layermem.backends.reference.base import Buffers, kernel


@kernel("Reduction.forward")
def reduction_forward(layer: Any, b: Buffers) -> None:
    x = {"ASUM": np.abs, "SUMSQ": np.square}.get(layer.operation, np.asarray)(b.x)
    b.y[...] = layer.factor * x.sum(axis=tuple(range(layer.along, x.ndim)))


@kernel("Reduction.backward")
def reduction_backward(layer: Any, b: Buffers) -> None:
    dy = layer.factor * b.dy.reshape(b.dy.shape + (1,) * (b.dx.ndim - b.dy.ndim))
    if layer.operation == "ASUM":
        dy = dy * np.sign(b.x)
    elif layer.operation == "SUMSQ":
        dy = dy * (2 * b.x)
    b.dx[...] = dy


@kernel("ArgMax.forward")
def argmax_forward(layer: Any, b: Buffers) -> None:
    x = b.x.reshape(b.x.shape[0], -1) if layer.along is None else np.moveaxis(b.x, layer.along, -1)
    backwards = np.argsort(x, axis=-1, kind="stable")[..., ::-1]  # falling values; of equals the last first
    places = backwards[..., : layer.top_k]
    values = np.take_along_axis(x, places, axis=-1)
    if layer.along is not None:
        b.y[...] = np.moveaxis(values if layer.with_values else places, -1, layer.along)
    else:
        found = np.stack([places, values], axis=1) if layer.with_values else places
        b.y[...] = found.reshape(b.y.shape)
