"""InnerProduct: one matrix product forward, two backward."""

from __future__ import annotations

import numpy as np

from layermem.backends.reference.base import Array, ReferenceCall, kernel
from layermem.backends.reference.epilogue import finish_epilogue
from layermem.backends.reference.update import update
from layermem.ops import InnerProduct, InnerProductUpdate


def memory_order(op: InnerProduct, array: Array) -> Array:
    """x, w or a gradient of theirs with its axes as they lie in memory, where x and w lie alike."""
    return array.transpose(0, 2, 3, 1) if op.spatial else array


def bottom_rows(op: InnerProduct, x: Array) -> Array:
    """[rows, inner]"""
    return memory_order(op, x).reshape(op.rows, op.inner)


def weight_rows(op: InnerProduct, w: Array) -> Array:
    """[outputs, inner]"""
    return w.T if op.transpose else memory_order(op, w).reshape(op.outputs, op.inner)


@kernel(InnerProduct, "forward")
def inner_product_fprop(op: InnerProduct, call: ReferenceCall) -> None:
    y = bottom_rows(op, call["x0"]) @ weight_rows(op, call["w0"]).T
    if op.bias:
        y += call["w1"]
    y = y.reshape(call["y0"].shape)
    finish_epilogue(call, y, relu=op.relu, residual=op.residual)


@kernel(InnerProduct, "wgrad")
def inner_product_wgrad(op: InnerProduct, call: ReferenceCall) -> None:
    dy = call["dy0"].reshape(op.rows, op.outputs)
    if "dw0" in call:
        dw = dy.T @ bottom_rows(op, call["x0"])
        place = call["dw0"].T if op.transpose else memory_order(op, call["dw0"])
        place[...] = dw.reshape(place.shape)
    if "dw1" in call:
        call["dw1"][...] = dy.sum(axis=0, dtype=np.float64)


@kernel(InnerProduct, "dgrad")
def inner_product_dgrad(op: InnerProduct, call: ReferenceCall) -> None:
    dx = call["dy0"].reshape(op.rows, op.outputs) @ weight_rows(op, call["w0"])
    place = memory_order(op, call["dx0"])
    place[...] = dx.reshape(place.shape)


@kernel(InnerProductUpdate, "backward_update")
def inner_product_backward_update(op: InnerProductUpdate, call: ReferenceCall) -> None:
    """wgrad, then the update, with the gradient in memory of NumPy's own."""
    gradient = np.empty_like(call["w0"])
    inner_product_wgrad(op.product, call.part("x0", "dy0", "dw1", dw0=gradient))
    update(op.update, call.part("w0", "h0", "h1", dw0=gradient))
