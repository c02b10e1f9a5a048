"""Embed and BatchReindex: rows of a table, chosen by index."""

from __future__ import annotations

import numpy as np

from layermem.backends.reference.base import Array, ReferenceCall, kernel, sum_of_items
from layermem.backends.reference.loss import labels_of
from layermem.ops import BatchReindex, Embed, Gather


def gather(op: Gather, call: ReferenceCall, table: Array, index: Array) -> Array:
    chosen = table.reshape(op.rows, op.width)[labels_of(op, call, index)]
    return chosen.reshape(op.y.shape)


def scatter(op: Gather, call: ReferenceCall, index: Array, dy: Array) -> Array:
    """[rows, width]: each row is the sum of the rows of dy that were read from it, in order."""
    total = np.zeros((op.rows, op.width), dy.dtype)
    np.add.at(total, labels_of(op, call, index), dy.reshape(op.count, op.width))
    return total


@kernel(Embed, "forward")
def embed_forward(op: Embed, call: ReferenceCall) -> None:
    call["y0"][...] = gather(op, call, call["w0"], call["x0"])
    if op.bias:
        call["y0"][...] += call["w1"]


@kernel(Embed, "wgrad", carry=lambda op, role: 4 * op.rows * op.width if role == "dw0" else 8 * op.width)
def embed_wgrad(op: Embed, call: ReferenceCall) -> None:
    dy = call["dy0"].reshape(op.count, op.width)
    if call.wants("dw0"):
        total = sum_of_items(op, call, "dw0", (op.rows, op.width), dy.dtype, ())
        np.add.at(total, labels_of(op, call, call["x0"]), dy)
        if "dw0" in call:
            call["dw0"][...] = total
    if call.wants("dw1"):
        total = sum_of_items(op, call, "dw1", (op.width,), np.float64, dy)
        if "dw1" in call:
            call["dw1"][...] = total


@kernel(BatchReindex, "forward")
def batch_reindex_forward(op: BatchReindex, call: ReferenceCall) -> None:
    call["y0"][...] = gather(op, call, call["x0"], call["x1"])


@kernel(BatchReindex, "backward")
def batch_reindex_backward(op: BatchReindex, call: ReferenceCall) -> None:
    call["dx0"][...] = scatter(op, call, call["x1"], call["dy0"]).reshape(op.x.shape)
