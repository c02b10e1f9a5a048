"""InnerProduct: one matrix product forward, two backward."""

from __future__ import annotations

from typing import Any

import numpy as np

from layermem.backends.reference.base import KERNELS, Buffers, kernel


def memory_order(layer: Any, array: np.ndarray) -> np.ndarray:
    """x, w or a gradient of theirs with its axes as they lie in memory, where x and w lie alike."""
    return array.transpose(0, 2, 3, 1) if layer.spatial else array


def bottom_rows(layer: Any, x: np.ndarray) -> np.ndarray:
    """[rows, inner]"""
    return memory_order(layer, x).reshape(layer.rows, layer.inner)


def weight_rows(layer: Any, w: np.ndarray) -> np.ndarray:
    """[outputs, inner]"""
    return w.T if layer.transpose else memory_order(layer, w).reshape(layer.outputs, layer.inner)


@kernel("InnerProduct.forward")
def forward(layer: Any, b: Buffers) -> None:
    y = bottom_rows(layer, b.x) @ weight_rows(layer, b.w0).T
    if layer.has_bias:
        y += b.w1
    b.y[...] = y.reshape(b.y.shape)


@kernel("InnerProduct.wgrad")
def backward_weights(layer: Any, b: Buffers) -> None:
    dy = b.dy.reshape(layer.rows, layer.outputs)
    if b.has("dw0"):
        dw = dy.T @ bottom_rows(layer, b.x)
        place = b.dw0.T if layer.transpose else memory_order(layer, b.dw0)
        place[...] = dw.reshape(place.shape)
    if b.has("dw1"):
        b.dw1[...] = dy.sum(axis=0, dtype=np.float64)


@kernel("InnerProduct.dgrad")
def backward_data(layer: Any, b: Buffers) -> None:
    dx = b.dy.reshape(layer.rows, layer.outputs) @ weight_rows(layer, b.w0)
    place = memory_order(layer, b.dx)
    place[...] = dx.reshape(place.shape)


@kernel("InnerProduct.backward_update")
def learn(learned: Any, b: Buffers) -> None:
    """backward_weights, then the update, with the gradient as NumPy's own."""
    arrays = {role: getattr(b, role) for role in ("x0", "dy0", "dw1") if b.has(role)}
    gradient = np.empty_like(b.w0)
    KERNELS["InnerProduct.wgrad"](learned.inner, Buffers({**arrays, "dw0": gradient}))
    changed = {role: getattr(b, role) for role in ("w0", "h0", "h1") if b.has(role)}
    KERNELS[f"{learned.rule}.update"](learned.parameter, Buffers({**changed, "dw0": gradient}, b.context))
