"""BatchNorm, with what follows it.  Long sums are in double precision for all blob types."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from layermem.backends.reference.base import Array, ReferenceCall, double_sum, kernel
from layermem.backends.reference.support.epilogue import finish_epilogue
from layermem.ops import CARRY, BatchNorm, BatchNormScale, MovingAverage, first_index

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
    """The factor from sums to averages; before the first training step there are none, and Caffe takes 0."""
    return 1 / call["w2"][0] if call["w2"][0] else 0.0


def merge_moments(op: BatchNorm, call: ReferenceCall) -> Array | None:
    """[2, C]: mean and variance of each channel of the batch, in double precision, item by item; None if they are
    carried to the next slice."""
    x = call["x0"].astype(np.float64)
    count, total = x[0].size // op.channels, np.zeros((2, op.channels))  # mean, squared differences from it
    if "mean" + CARRY in call:
        total = call["mean" + CARRY].view(np.float64)[: total.size].reshape(total.shape)
    # A Flatten turns an item into several rows.
    first = first_index(op.batch_slice, len(x))
    for number, item in enumerate(x, first):
        mean = item.reshape(op.channels, -1).mean(axis=1)
        squares = ((item.reshape(op.channels, -1) - mean[:, None]) ** 2).sum(axis=1)
        if number == 0:
            total[...] = mean, squares
            continue
        delta = mean - total[0]
        total[0] += delta / (number + 1)
        total[1] += squares + delta**2 * count * (number / (number + 1))
    if op.batch_slice is not None and not op.batch_slice.is_last:
        return None
    return np.stack([total[0], total[1] / op.per_channel])


def batch_norm_carry_bytes(op: BatchNorm | BatchNormScale, role: str) -> int:
    """Bytes of carried results: mean and variance for statistics, two sums for gradients, and with a Scale the sums of
    dy too.  Other results are made from these."""
    rows = {"mean": 2, "sums": 4 if isinstance(op, BatchNormScale) else 2}.get(role, 0)
    return 8 * rows * op.x.shape[1]


def move_averages(kept: float, call: ReferenceCall, values: Mapping[str, Array | float]) -> None:
    """Move averages, by role, by the statistics of a batch; with `kept` 0 old values have no effect, even NaN."""
    for role, value in values.items():
        call[role][...] = kept * call[role] + value if kept else value


def write_statistics(op: BatchNorm, call: ReferenceCall) -> tuple[Array, Array] | None:
    """Mean and 1 / sqrt(variance + eps), once the last item has been added; else None."""
    moments = merge_moments(op, call)
    if moments is None:
        return None
    mean, variance = moments
    mean = mean.astype(call["x0"].dtype)  # rounded, so that a recomputation has the same bits
    inv_std = (1 / np.sqrt(variance + op.eps)).astype(call["x0"].dtype)
    unbiased = op.per_channel / (op.per_channel - 1) if op.per_channel > 1 else 1.0
    statistics = {"w0": mean, "w1": (unbiased * variance).astype(call["w1"].dtype), "w2": 1.0}
    move_averages(op.fraction, call, statistics)
    for role, value in (("mean", mean), ("inv_std", inv_std)):
        if role in call:
            call[role][...] = value
    return mean, inv_std


@kernel(BatchNorm, "statistics", carry=batch_norm_carry_bytes)
def batch_norm_statistics(op: BatchNorm, call: ReferenceCall) -> None:
    write_statistics(op, call)


@kernel(BatchNorm, "forward")
def batch_norm_forward(op: BatchNorm, call: ReferenceCall) -> None:
    if op.global_stats:
        call["y0"][...] = normalized(call["x0"], call["w0"] * global_factor(call), global_inv_std(op, call))
        return
    statistics = write_statistics(op, call)
    assert statistics is not None  # it is the whole batch
    call["y0"][...] = normalized(call["x0"], *statistics)


@kernel(BatchNorm, "recompute")
def batch_norm_recompute(op: BatchNorm, call: ReferenceCall) -> None:
    call["y0"][...] = normalized(call["x0"], call["mean"], call["inv_std"])


def sum_gradients(op: BatchNorm, call: ReferenceCall, dy: Array, y: Array, first_row: int = 0) -> Array:
    """[2, C]: the sums of dy and of dy y over the batch, in double precision, item by item.  In a slice, the sums of
    all items so far, which are carried from row `first_row` on."""
    total = np.zeros((2, op.channels))
    if "sums" + CARRY in call:
        begin = first_row * op.channels
        total = call["sums" + CARRY].view(np.float64)[begin : begin + total.size].reshape(total.shape)
    if op.batch_slice is not None and op.batch_slice.is_first:
        total[...] = 0
    axes = tuple(range(1, dy.ndim - 1))  # the axes of an item
    for terms in zip(dy, dy * y, strict=True):
        for row, term in zip(total, terms, strict=True):
            row += double_sum(term, axes)
    return total


@kernel(BatchNorm, "gradient_sums", carry=batch_norm_carry_bytes)
def batch_norm_gradient_sums(op: BatchNorm, call: ReferenceCall) -> None:
    y = normalized(call["x0"], call["mean"], call["inv_std"])
    sums = sum_gradients(op, call, call["dy0"], y)
    if "sums" in call:
        call["sums"][...] = sums / op.per_channel


@kernel(BatchNorm, "input_gradient")
def batch_norm_input_gradient(op: BatchNorm, call: ReferenceCall) -> None:
    # dx = (dy - mean(dy) - y mean(dy y)) / std
    y = normalized(call["x0"], call["mean"], call["inv_std"])
    mean_dy, mean_dyy = (per_channel(row, y) for row in call["sums"])
    call["dx0"][...] = (call["dy0"] - mean_dy - y * mean_dyy) * per_channel(call["inv_std"], y)


@kernel(BatchNorm, "backward")
def batch_norm_backward(op: BatchNorm, call: ReferenceCall) -> None:
    if op.global_stats:
        call["dx0"][...] = call["dy0"] * per_channel(global_inv_std(op, call), call["dy0"])
        return
    whole = {"sums": np.empty((2, op.channels), call["dy0"].dtype)}
    batch_norm_gradient_sums(op, call.subset("x0", "mean", "inv_std", "dy0", **whole))
    batch_norm_input_gradient(op, call.subset("x0", "mean", "inv_std", "dy0", "dx0", **whole))


# ---- BatchNorm, Scale, residual and ReLU in one op -------------------------------------------------------------------


def finish_scale(op: BatchNormScale, call: ReferenceCall, y: Array) -> None:
    """Scale and shift the normalized `y`, then the op's epilogue."""
    scaled = y * per_channel(call["w3"], y) + per_channel(call["w4"], y)
    finish_epilogue(op, call, scaled, relu=op.relu, residual=op.residual)


@kernel(BatchNormScale, "forward")
def batch_norm_scale_forward(op: BatchNormScale, call: ReferenceCall) -> None:
    y = np.empty_like(call["x0"])
    batch_norm_forward(op.norm, call.subset("x0", "w0", "w1", "w2", "mean", "inv_std", y0=y))
    finish_scale(op, call, y)


@kernel(BatchNormScale, "recompute")
def batch_norm_scale_recompute(op: BatchNormScale, call: ReferenceCall) -> None:
    y = np.empty_like(call["x0"])
    batch_norm_recompute(op.norm, call.subset("x0", "mean", "inv_std", y0=y))
    finish_scale(op, call, y)


@kernel(BatchNormScale, "statistics", carry=batch_norm_carry_bytes)
def batch_norm_scale_statistics(op: BatchNormScale, call: ReferenceCall) -> None:
    batch_norm_statistics(op.norm, call)


def gradient_behind_relu(op: BatchNormScale, call: ReferenceCall, y: Array) -> Array:
    """dy, or 0 where the op's ReLU is not active; after a residual, dy is already masked."""
    if not op.relu or op.residual:
        return call["dy0"]
    positive = y * per_channel(call["w3"], y) + per_channel(call["w4"], y) > op.largest_zero
    return np.where(positive, call["dy0"], np.zeros((), y.dtype))


@kernel(BatchNormScale, "gradient_sums", carry=batch_norm_carry_bytes)
def batch_norm_scale_gradient_sums(op: BatchNormScale, call: ReferenceCall) -> None:
    """Carry two rows of sums of the gradient of the normalized y, as BatchNorm does, and two of bias and factor."""
    y = normalized(call["x0"], call["mean"], call["inv_std"])
    dy = gradient_behind_relu(op, call, y)
    sums = sum_gradients(op.norm, call, dy * per_channel(call["w3"], y), y)
    if "sums" in call:
        call["sums"][...] = sums / op.norm.per_channel
    for role, total in zip(("dw4", "dw3"), sum_gradients(op.norm, call, dy, y, 2), strict=True):
        if role in call:
            call[role][...] = total


@kernel(BatchNormScale, "input_gradient")
def batch_norm_scale_input_gradient(op: BatchNormScale, call: ReferenceCall) -> None:
    y = normalized(call["x0"], call["mean"], call["inv_std"])
    between = gradient_behind_relu(op, call, y) * per_channel(call["w3"], y)
    batch_norm_input_gradient(op.norm, call.subset("x0", "mean", "inv_std", "sums", "dx0", dy0=between))


@kernel(BatchNormScale, "backward")
def batch_norm_scale_backward(op: BatchNormScale, call: ReferenceCall) -> None:
    reads = ("x0", "mean", "inv_std", "w3", "w4", "dy0")
    whole = {"sums": np.empty((2, op.norm.channels), call["dy0"].dtype)}
    batch_norm_scale_gradient_sums(op, call.subset(*reads, "dw3", "dw4", **whole))
    if "dx0" in call:
        batch_norm_scale_input_gradient(op, call.subset(*reads, "dx0", **whole))


@kernel(MovingAverage, "average")
def moving_average(op: MovingAverage, call: ReferenceCall) -> None:
    roles = [(f"w{i}", f"x{i}") for i in range(3) if f"w{i}" in call]
    rows = {average: call[statistics].reshape(-1, call[average].size) for average, statistics in roles}
    for row in range(op.ops * call.context.get("averaged", op.batches)):
        move_averages(op.kept, call, {average: statistics[row] for average, statistics in rows.items()})
