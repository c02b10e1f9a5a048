"""LstmUnit: one step of an LSTM after its inner products.  Carry: copies net state to a blob and back."""

from __future__ import annotations

import numpy as np

from layermem.backends.reference.activation import sigmoid
from layermem.backends.reference.base import Array, ReferenceCall, kernel
from layermem.backends.reference.shape import copy
from layermem.ops import Carry, LstmUnit


def gates_of(op: LstmUnit, call: ReferenceCall) -> tuple[Array, Array, Array, Array, Array]:
    """i, f, o, g, and f times cont, each [items, cells]."""
    i, f, o, g = np.moveaxis(call["x1"].reshape(op.items, 4, op.cells), 1, 0)
    i, f, o, g = sigmoid(i), sigmoid(f), sigmoid(o), np.tanh(g)
    return i, f, o, g, call["x2"].reshape(op.items, 1) * f


@kernel(LstmUnit, "forward")
def lstm_unit_forward(op: LstmUnit, call: ReferenceCall) -> None:
    i, _, o, g, kept = gates_of(op, call)
    c = kept * call["x0"].reshape(kept.shape) + i * g
    call["y0"][...] = c.reshape(call["y0"].shape)
    call["y1"][...] = (o * np.tanh(c)).reshape(call["y1"].shape)


@kernel(LstmUnit, "backward")
def lstm_unit_backward(op: LstmUnit, call: ReferenceCall) -> None:
    i, f, o, g, kept = gates_of(op, call)
    before, dc, dh = (call[role].reshape(kept.shape) for role in ("x0", "dy0", "dy1"))
    size = np.tanh(kept * before + i * g)
    dc = dc + dh * o * (1 - size * size)
    di, df, do = dc * g * i * (1 - i), dc * before * kept * (1 - f), dh * size * o * (1 - o)
    dg = dc * i * (1 - g * g)
    dx0 = dc * kept
    if "dx1" in call:
        call["dx1"][...] = np.stack([di, df, do, dg], axis=1).reshape(call["dx1"].shape)
    if "dx0" in call:
        call["dx0"][...] = dx0.reshape(call["dx0"].shape)


@kernel(Carry, "load")
def carry_load(op: Carry, call: ReferenceCall) -> None:
    copy(call["y0"], call["w0"])


@kernel(Carry, "store")
def carry_store(op: Carry, call: ReferenceCall) -> None:
    copy(call["w0"], call["x0"])
