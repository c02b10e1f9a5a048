"""InnerProduct: one matrix product forward, two backward.

Rows are multiplied one by one, and gradients add one row after the other, so that a row has the same bits in any batch.
NumPy sums over a row in an order that depends on the shape of the matrix; therefore a band of weights is multiplied as
part of a matrix of all rows, and dgrad reads all bands.
"""

from __future__ import annotations

import numpy as np

from layermem.backends.reference.base import Array, ReferenceCall, kernel, sum_of_items
from layermem.backends.reference.support.epilogue import finish_epilogue
from layermem.backends.reference.update import update
from layermem.ops import InnerProduct, InnerProductUpdate

AT_ONCE = 1 << 15  # elements of a gradient that stay in the cache while all rows are added to them


def memory_order(op: InnerProduct, array: Array) -> Array:
    """x, w or one of their gradients with axes in memory order, if x and w have the same order."""
    return array.transpose(0, 2, 3, 1) if op.spatial else array


def bottom_rows(op: InnerProduct, x: Array) -> Array:
    """[rows, inner]"""
    return memory_order(op, x).reshape(op.rows, op.inner)


def weight_rows(op: InnerProduct, w: Array) -> Array:
    """[outputs, inner]"""
    return w.T if op.transpose else memory_order(op, w).reshape(op.outputs, op.inner)


def by_row(rows: Array, matrix: Array) -> Array:
    """rows @ matrix, for rows in one layout: with a batch of one item they may be a strided view, which BLAS sums in
    another order."""
    products: Array = np.ascontiguousarray(rows)[:, None] @ matrix
    return products[:, 0]


def carry_bytes(op: InnerProduct, role: str) -> int:
    return 4 * op.outputs * op.inner if role == "dw0" else 8 * op.outputs


def columns_of(op: InnerProduct) -> slice:
    """The columns of the whole y that this op computes."""
    return slice(op.first_output, op.first_output + op.outputs)


def among_all_rows(op: InnerProduct, rows: Array) -> Array:
    """A band of rows of the weights in a matrix of all rows, with zeros elsewhere."""
    if op.band is None:
        return rows
    matrix = np.zeros((op.band.rows, op.inner), rows.dtype)
    matrix[columns_of(op)] = rows
    return matrix


@kernel(InnerProduct, "forward")
def inner_product_fprop(op: InnerProduct, call: ReferenceCall) -> None:
    columns = columns_of(op)
    y = by_row(bottom_rows(op, call["x0"]), among_all_rows(op, weight_rows(op, call["w0"])).T)[:, columns]
    if op.bias:
        y += call["w1"][columns]
    y = y.reshape(call["y0"].shape)
    finish_epilogue(op, call, y, relu=op.relu, residual=op.residual)


@kernel(InnerProduct, "wgrad", carry=carry_bytes)
def inner_product_wgrad(op: InnerProduct, call: ReferenceCall) -> None:
    dy = call["dy0"].reshape(op.rows, op.dy_outputs)[:, columns_of(op)]
    if call.wants("dw0"):
        x = bottom_rows(op, call["x0"])
        dw = sum_of_items(op, call, "dw0", (op.outputs, op.inner), dy.dtype, ())
        step = max(1, AT_ONCE // op.inner)
        for outputs in (slice(first, first + step) for first in range(0, op.outputs, step)):
            for row, row_of_x in zip(dy[:, outputs, None], x, strict=True):
                dw[outputs] += row * row_of_x
        if "dw0" in call:
            place = call["dw0"].T if op.transpose else memory_order(op, call["dw0"])
            place[...] = dw.reshape(place.shape)
    if call.wants("dw1"):
        total = sum_of_items(op, call, "dw1", (op.outputs,), np.float64, dy)
        if "dw1" in call:
            call["dw1"][...] = total


@kernel(InnerProduct, "dgrad")
def inner_product_dgrad(op: InnerProduct, call: ReferenceCall) -> None:
    dx = by_row(call["dy0"].reshape(op.rows, op.outputs), weight_rows(op, call["w0"]))
    place = memory_order(op, call["dx0"])
    place[...] = dx.reshape(place.shape)


@kernel(InnerProduct, "gathered_dgrad")
def inner_product_gathered_dgrad(op: InnerProduct, call: ReferenceCall) -> None:
    """Compute dgrad with all bands joined in a temporary of NumPy."""
    weights = np.concatenate([memory_order(op, band) for band in call.all("w")])
    dx = by_row(call["dy0"].reshape(op.rows, op.outputs), weights.reshape(op.outputs, op.inner))
    place = memory_order(op, call["dx0"])
    place[...] = dx.reshape(place.shape)


@kernel(InnerProductUpdate, "backward_update")
def inner_product_backward_update(op: InnerProductUpdate, call: ReferenceCall) -> None:
    """Compute wgrad, then the update, with the gradient in a temporary of NumPy."""
    gradient = np.empty_like(call["w0"])
    inner_product_wgrad(op.product, call.subset("x0", "dy0", "dw1", dw0=gradient))
    update(op.update, call.subset("w0", "h0", "h1", dw0=gradient))
