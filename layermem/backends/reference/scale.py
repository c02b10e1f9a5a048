"""Scale and Bias.  Their sums are in double precision for all blob types."""

from __future__ import annotations

from math import prod

import numpy as np

from layermem.backends.reference.base import Array, ReferenceCall, double_sum, kernel, sum_of_items
from layermem.ops import Bias, Scale


def operand_of(op: Scale | Bias, call: ReferenceCall, role: str) -> Array:
    return call[role].reshape(op.view)


def write_sum(op: Scale | Bias, call: ReferenceCall, role: str, a: Array) -> None:
    """Sum `a`, shaped like x, over the axes that `role` does not span."""
    if 0 not in op.summed:
        call[role][...] = double_sum(a, op.summed).reshape(call[role].shape)
        return
    others = tuple(axis - 1 for axis in op.summed if axis)
    shape = tuple(size for axis, size in enumerate(a.shape) if axis not in op.summed)
    total = sum_of_items(op, call, role, shape, np.float64, (double_sum(item, others) for item in a))
    if role in call:
        call[role][...] = total.reshape(call[role].shape)


def carry_bytes(op: Scale | Bias, role: str) -> int:
    return 8 * prod(op.view)


@kernel(Scale, "forward")
def scale_forward(op: Scale, call: ReferenceCall) -> None:
    y = call["x0"] * operand_of(op, call, op.operand)
    if op.bias:
        y += operand_of(op, call, op.bias)
    call["y0"][...] = y


@kernel(Scale, "backward", carry=carry_bytes)
def scale_backward(op: Scale, call: ReferenceCall) -> None:
    if call.wants(f"d{op.operand}"):
        write_sum(op, call, f"d{op.operand}", call["dy0"] * call["x0"])
    if op.bias and call.wants(f"d{op.bias}"):
        write_sum(op, call, f"d{op.bias}", call["dy0"])
    if "dx0" in call:  # last: it may overlay dy or x
        call["dx0"][...] = call["dy0"] * operand_of(op, call, op.operand)


@kernel(Bias, "forward")
def bias_forward(op: Bias, call: ReferenceCall) -> None:
    call["y0"][...] = call["x0"] + operand_of(op, call, op.operand)


@kernel(Bias, "backward", carry=carry_bytes)
def bias_backward(op: Bias, call: ReferenceCall) -> None:
    if call.wants(f"d{op.operand}"):
        write_sum(op, call, f"d{op.operand}", call["dy0"])
    if "dx0" in call:
        call["dx0"][...] = call["dy0"]
