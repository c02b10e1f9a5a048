"""LRN, BatchNorm, Scale and Bias.  Long sums run in double precision, whatever the blobs are."""

from __future__ import annotations

from math import prod

import numpy as np

from layermem.backends.reference.base import Array, ReferenceCall, double_sum, kernel, sum_of_items
from layermem.backends.reference.epilogue import finish_epilogue
from layermem.ops import LRN, BatchNorm, BatchNormScale, Bias, Scale

# ---- LRN -----------------------------------------------------------------------------------------------------------


def sum_along(a: Array, axis: int, size: int) -> Array:
    """The sum of the `size` elements around each one, zero beyond the border."""
    along, total = np.moveaxis(a, axis, 0), np.zeros_like(a)
    into, length = np.moveaxis(total, axis, 0), a.shape[axis]
    for shift in range(-(size // 2), size // 2 + 1):
        first, last = max(0, -shift), length - max(0, shift)
        if first < last:
            into[first:last] += along[first + shift : last + shift]
    return total


def sum_around(op: LRN, a: Array) -> Array:
    if op.across:
        return sum_along(a, 1, op.size)
    return sum_along(sum_along(a, 2, op.size), 3, op.size)


def lrn_scale(op: LRN, x: Array) -> Array:
    return op.k + op.alpha * sum_around(op, x * x)


@kernel(LRN, "forward")
def lrn_forward(op: LRN, call: ReferenceCall) -> None:
    call["y0"][...] = call["x0"] * lrn_scale(op, call["x0"]) ** -op.beta


@kernel(LRN, "backward")
def lrn_backward(op: LRN, call: ReferenceCall) -> None:
    # dx = dy s^-beta - 2 alpha beta x sum_around(dy x s^(-beta-1))
    scale = lrn_scale(op, call["x0"])
    direct = call["dy0"] * scale**-op.beta
    call["dx0"][...] = direct - 2 * op.alpha * op.beta * call["x0"] * sum_around(op, direct * call["x0"] / scale)


# ---- BatchNorm -----------------------------------------------------------------------------------------------------


def channel_mean(a: Array) -> Array:
    """[C] in double precision."""
    mean: Array = a.mean(axis=tuple(i for i in range(a.ndim) if i != 1), dtype=np.float64)
    return mean


def per_channel(values: Array, like: Array) -> Array:
    """[C] -> [1,C,1,..] in the type of `like`."""
    return values.astype(like.dtype).reshape(1, -1, *(1,) * (like.ndim - 2))


def normalized(x: Array, mean: Array, inv_std: Array) -> Array:
    return (x - per_channel(mean, x)) * per_channel(inv_std, x)


def global_inv_std(op: BatchNorm, call: ReferenceCall) -> Array:
    return 1 / np.sqrt(call["w1"] * global_factor(call) + op.eps)


def global_factor(call: ReferenceCall) -> float:
    """What turns the sums into averages; before the first training step there are none, and Caffe takes 0."""
    return 1 / call["w2"][0] if call["w2"][0] else 0.0


@kernel(BatchNorm, "forward")
def batch_norm_forward(op: BatchNorm, call: ReferenceCall) -> None:
    if op.global_stats:
        call["y0"][...] = normalized(call["x0"], call["w0"] * global_factor(call), global_inv_std(op, call))
        return
    mean = channel_mean(call["x0"]).astype(call["x0"].dtype)  # rounded, so that a recomputation has the same bits
    variance = channel_mean((call["x0"] - per_channel(mean, call["x0"])) ** 2)
    inv_std = (1 / np.sqrt(variance + op.eps)).astype(call["x0"].dtype)
    unbiased = op.per_channel / (op.per_channel - 1) if op.per_channel > 1 else 1.0
    call["w0"][...] = op.fraction * call["w0"] + mean
    call["w1"][...] = op.fraction * call["w1"] + unbiased * variance
    call["w2"][...] = op.fraction * call["w2"] + 1
    for role, value in (("mean", mean), ("inv_std", inv_std)):
        if role in call:
            call[role][...] = value
    call["y0"][...] = normalized(call["x0"], mean, inv_std)


@kernel(BatchNorm, "recompute")
def batch_norm_recompute(op: BatchNorm, call: ReferenceCall) -> None:
    call["y0"][...] = normalized(call["x0"], call["mean"], call["inv_std"])


@kernel(BatchNorm, "backward")
def batch_norm_backward(op: BatchNorm, call: ReferenceCall) -> None:
    if op.global_stats:
        call["dx0"][...] = call["dy0"] * per_channel(global_inv_std(op, call), call["dy0"])
        return
    # dx = (dy - mean(dy) - y mean(dy y)) / std
    y = normalized(call["x0"], call["mean"], call["inv_std"])
    centred = call["dy0"] - per_channel(channel_mean(call["dy0"]), y)
    call["dx0"][...] = (centred - y * per_channel(channel_mean(call["dy0"] * y), y)) * per_channel(call["inv_std"], y)


# ---- Scale and Bias ------------------------------------------------------------------------------------------------


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
    if "dx0" in call:  # last: it may lie over dy or x
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


# ---- BatchNorm, Scale, residual and ReLU in one op -------------------------------------------------------------------


def finish_scale(op: BatchNormScale, call: ReferenceCall, y: Array) -> None:
    """Scale and shift the normalized `y`, then the op's epilogue."""
    scaled = y * per_channel(call["w3"], y) + per_channel(call["w4"], y)
    finish_epilogue(call, scaled, relu=op.relu, residual=op.residual)


@kernel(BatchNormScale, "forward")
def batch_norm_scale_forward(op: BatchNormScale, call: ReferenceCall) -> None:
    y = np.empty_like(call["x0"])
    batch_norm_forward(op.norm, call.part("x0", "w0", "w1", "w2", "mean", "inv_std", y0=y))
    finish_scale(op, call, y)


@kernel(BatchNormScale, "recompute")
def batch_norm_scale_recompute(op: BatchNormScale, call: ReferenceCall) -> None:
    y = np.empty_like(call["x0"])
    batch_norm_recompute(op.norm, call.part("x0", "mean", "inv_std", y0=y))
    finish_scale(op, call, y)


@kernel(BatchNormScale, "backward")
def batch_norm_scale_backward(op: BatchNormScale, call: ReferenceCall) -> None:
    y = normalized(call["x0"], call["mean"], call["inv_std"])
    dy = call["dy0"]
    if op.relu and not op.residual:  # after a residual, the ReLU's mask has been applied to dy already
        dy = np.where(y * per_channel(call["w3"], y) + per_channel(call["w4"], y) > 0, dy, 0)
    between = np.empty_like(y)
    gradients = {f"dw{i}": call[f"dw{i + 3}"] for i in (0, 1) if f"dw{i + 3}" in call}
    scale_backward(op.scale, ReferenceCall({"x0": y, "w0": call["w3"], "dy0": dy, "dx0": between, **gradients}))
    if "dx0" in call:
        batch_norm_backward(op.norm, call.part("x0", "mean", "inv_std", "dx0", dy0=between))
