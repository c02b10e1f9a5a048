"""Reduction and ArgMax."""

from __future__ import annotations

import numpy as np

from layermem.backends.reference.base import ReferenceCall, kernel
from layermem.ops import ArgMax, Reduction


@kernel(Reduction, "forward")
def reduction_forward(op: Reduction, call: ReferenceCall) -> None:
    x = {"ASUM": np.abs, "SUMSQ": np.square}.get(op.operation, np.asarray)(call["x0"])
    call["y0"][...] = op.factor * x.sum(axis=tuple(range(op.along, x.ndim)))


@kernel(Reduction, "backward")
def reduction_backward(op: Reduction, call: ReferenceCall) -> None:
    dy = op.factor * call["dy0"].reshape(call["dy0"].shape + (1,) * (call["dx0"].ndim - call["dy0"].ndim))
    if op.operation == "ASUM":
        dy = dy * np.sign(call["x0"])
    elif op.operation == "SUMSQ":
        dy = dy * (2 * call["x0"])
    call["dx0"][...] = dy


@kernel(ArgMax, "forward")
def argmax_forward(op: ArgMax, call: ReferenceCall) -> None:
    x = call["x0"].reshape(call["x0"].shape[0], -1) if op.along is None else np.moveaxis(call["x0"], op.along, -1)
    backwards = np.argsort(x, axis=-1, kind="stable")[..., ::-1]  # falling values; among equals the last first
    places = backwards[..., : op.top_k]
    values = np.take_along_axis(x, places, axis=-1)
    if op.along is not None:
        call["y0"][...] = np.moveaxis(values if op.with_values else places, -1, op.along)
    else:
        result = np.stack([places, values], axis=1) if op.with_values else places
        call["y0"][...] = result.reshape(call["y0"].shape)
