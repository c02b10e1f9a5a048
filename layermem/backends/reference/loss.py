"""Losses against targets.  Sums run over whole arrays; gradients are complete before they are stored."""

from __future__ import annotations

import numpy as np

from layermem.backends.reference.activation import sigmoid
from layermem.backends.reference.base import Array, ReferenceCall, double_sum, kernel, sum_of_items
from layermem.errors import InputError
from layermem.ops import (
    WHOLE,
    ContrastiveLoss,
    EuclideanLoss,
    HingeLoss,
    ItemLoss,
    MultinomialLogisticLoss,
    OpRecord,
    ReadsLabels,
    SigmoidCrossEntropyLoss,
    SmoothL1Loss,
)

SMALLEST = 1e-20  # lower limit of probabilities in MultinomialLogisticLoss
LABEL_END = 2.0**53  # beyond any class
NEAR = 1e-4  # keeps ContrastiveLoss from dividing by a distance of 0


def labels_of(op: ReadsLabels, call: ReferenceCall, label: Array, ignore_label: int | None = None) -> Array:
    """The integer parts of labels, as in Caffe, with ignored ones unchanged; InputError if another is no class."""
    values = label.reshape(-1)
    labels = np.where(np.abs(values) < LABEL_END, values, -1 - LABEL_END).astype(np.int64)  # also replaces NaN
    invalid = (labels < 0) | (labels >= op.classes)
    if ignore_label is not None:
        invalid &= labels != ignore_label
    if invalid.any():
        raise InputError(op.bad_label(f"{values[invalid][0]:.9g}"), layer=call.layer)
    return labels


def divisor(normalizer: int | None, valid: Array) -> int:
    """The divisor of the loss, at least 1."""
    return max(1, int(np.count_nonzero(valid)) if normalizer is None else normalizer)


def write_loss(op: OpRecord, call: ReferenceCall, each: Array, divisor: float) -> None:
    """Write y0 = the sum of `each` / divisor; axis 0 of `each` is the batch."""
    rows = each.reshape(len(each), -1)
    total = sum_of_items(op, call, "y0", (), np.float64, double_sum(rows, 1))
    if "y0" in call:
        call["y0"][...] = total / divisor


def items_of(op: EuclideanLoss | SmoothL1Loss | ItemLoss | ContrastiveLoss) -> int:
    """The number of items of the whole batch."""
    return op.items if op.batch_slice is None else op.batch_slice.items


def loss_bytes(op: OpRecord, role: str) -> int:
    return 8


# -- EuclideanLoss ---------------------------------------------------------------------------------------------


@kernel(EuclideanLoss, "forward", carry=loss_bytes)
def euclidean_forward(op: EuclideanLoss, call: ReferenceCall) -> None:
    difference = call["x0"] - call["x1"].reshape(call["x0"].shape)
    write_loss(op, call, np.square(difference), 2 * items_of(op))


@kernel(EuclideanLoss, "backward")
def euclidean_backward(op: EuclideanLoss, call: ReferenceCall) -> None:
    gradient = (call["dy0"] / items_of(op)) * (call["x0"] - call["x1"].reshape(call["x0"].shape))
    if "dx0" in call:
        call["dx0"][...] = gradient
    if "dx1" in call:
        call["dx1"][...] = -gradient.reshape(call["dx1"].shape)


# -- SmoothL1Loss ------------------------------------------------------------------------------------------------------


def smooth_l1_operands(op: SmoothL1Loss, call: ReferenceCall) -> tuple[Array, Array | float, Array | float]:
    """The weighted difference, the weights inside and the weights outside."""
    a = call["x0"]
    inside = call["x2"].reshape(a.shape) if op.inside else 1.0
    outside = call["x3"].reshape(a.shape) if op.outside else 1.0
    return inside * (a - call["x1"].reshape(a.shape)), inside, outside


@kernel(SmoothL1Loss, "forward", carry=loss_bytes)
def smooth_l1_forward(op: SmoothL1Loss, call: ReferenceCall) -> None:
    d, _, outside = smooth_l1_operands(op, call)
    sharpness = op.sigma**2
    near = np.abs(d) < 1 / sharpness
    losses = outside * np.where(near, sharpness / 2 * d * d, np.abs(d) - 0.5 / sharpness)
    write_loss(op, call, losses, items_of(op))


@kernel(SmoothL1Loss, "backward")
def smooth_l1_backward(op: SmoothL1Loss, call: ReferenceCall) -> None:
    d, inside, outside = smooth_l1_operands(op, call)
    sharpness = op.sigma**2
    slope = np.where(np.abs(d) < 1 / sharpness, sharpness * d, np.sign(d))
    gradient = (call["dy0"] / items_of(op)) * slope * inside * outside
    if "dx0" in call:
        call["dx0"][...] = gradient
    if "dx1" in call:
        call["dx1"][...] = -gradient.reshape(call["dx1"].shape)


# -- SigmoidCrossEntropyLoss -------------------------------------------------------------------------------------


def targets(op: SigmoidCrossEntropyLoss, call: ReferenceCall) -> tuple[Array, Array]:
    """Targets in the shape of x, and whether each counts."""
    t = call["x1"].reshape(call["x0"].shape)
    if op.ignore_label is None:
        return t, np.ones(t.shape, bool)
    return t, np.trunc(t) != op.ignore_label


def counted(op: SigmoidCrossEntropyLoss, call: ReferenceCall, valid: Array) -> Array:
    """For each target of the whole batch, whether it counts."""
    if f"x1{WHOLE}" not in call:
        return valid
    whole: Array = np.trunc(call[f"x1{WHOLE}"])
    return np.ones(whole.shape, bool) if op.ignore_label is None else whole != op.ignore_label


@kernel(SigmoidCrossEntropyLoss, "forward", carry=loss_bytes)
def sigmoid_cross_entropy_forward(op: SigmoidCrossEntropyLoss, call: ReferenceCall) -> None:
    x = call["x0"]
    t, valid = targets(op, call)
    # -t ln s(x) - (1 - t) ln(1 - s(x)), without a number that overflows
    each = np.maximum(x, 0) - x * t + np.log1p(np.exp(-np.abs(x)))
    write_loss(op, call, np.where(valid, each, 0), divisor(op.normalizer, counted(op, call, valid)))


@kernel(SigmoidCrossEntropyLoss, "backward")
def sigmoid_cross_entropy_backward(op: SigmoidCrossEntropyLoss, call: ReferenceCall) -> None:
    t, valid = targets(op, call)
    scale = call["dy0"] / divisor(op.normalizer, counted(op, call, valid))
    call["dx0"][...] = np.where(valid, scale * (sigmoid(call["x0"]) - t), 0)


# -- HingeLoss, MultinomialLogisticLoss ------------------------------------------------------------------------------


def at_label(op: ItemLoss, call: ReferenceCall) -> tuple[Array, Array]:
    """Index of each item's label in an array [items, classes]."""
    return np.arange(op.items), labels_of(op, call, call["x1"])


def hinges(op: HingeLoss, call: ReferenceCall) -> tuple[Array, Array]:
    """Signs (-1 at the label, else 1) and max(0, 1 + sign x), both [items, classes]."""
    x = call["x0"].reshape(op.items, op.classes)
    sign = np.ones_like(x)
    sign[at_label(op, call)] = -1
    return sign, np.maximum(0, 1 + sign * x)


@kernel(HingeLoss, "forward", carry=loss_bytes)
def hinge_forward(op: HingeLoss, call: ReferenceCall) -> None:
    _, over = hinges(op, call)
    write_loss(op, call, np.square(over) if op.squared else over, items_of(op))


@kernel(HingeLoss, "backward")
def hinge_backward(op: HingeLoss, call: ReferenceCall) -> None:
    sign, over = hinges(op, call)
    slope = 2 * over if op.squared else np.sign(over)
    call["dx0"][...] = ((call["dy0"] / items_of(op)) * sign * slope).reshape(call["dx0"].shape)


@kernel(MultinomialLogisticLoss, "forward", carry=loss_bytes)
def multinomial_forward(op: MultinomialLogisticLoss, call: ReferenceCall) -> None:
    p = call["x0"].reshape(op.items, op.classes)[at_label(op, call)]
    write_loss(op, call, -np.log(np.maximum(p, SMALLEST)), items_of(op))


@kernel(MultinomialLogisticLoss, "backward")
def multinomial_backward(op: MultinomialLogisticLoss, call: ReferenceCall) -> None:
    at = at_label(op, call)
    p = call["x0"].reshape(op.items, op.classes)
    gradient = np.zeros_like(p)
    gradient[at] = -(call["dy0"] / items_of(op)) / np.maximum(p[at], SMALLEST)
    call["dx0"][...] = gradient.reshape(call["dx0"].shape)


# -- ContrastiveLoss -------------------------------------------------------------------------------------------


def pairs(op: ContrastiveLoss, call: ReferenceCall) -> tuple[Array, Array, Array]:
    """a - b [N,C], |a - b|^2 [N], and whether each pair is the same [N]."""
    difference = (call["x0"] - call["x1"].reshape(call["x0"].shape)).reshape(op.items, -1)
    return difference, np.square(difference).sum(axis=1), call["x2"].astype(np.int64).reshape(-1) != 0


@kernel(ContrastiveLoss, "forward", carry=loss_bytes)
def contrastive_forward(op: ContrastiveLoss, call: ReferenceCall) -> None:
    _, squared, same = pairs(op, call)
    if op.legacy:
        unlike = np.maximum(op.margin - squared, 0)
    else:
        unlike = np.square(np.maximum(op.margin - np.sqrt(squared), 0))
    write_loss(op, call, np.where(same, squared, unlike), 2 * items_of(op))


@kernel(ContrastiveLoss, "backward")
def contrastive_backward(op: ContrastiveLoss, call: ReferenceCall) -> None:
    difference, squared, same = pairs(op, call)
    if op.legacy:
        unlike = -np.sign(np.maximum(op.margin - squared, 0))
    else:
        distance = np.sqrt(squared)
        unlike = -np.maximum(op.margin - distance, 0) / (distance + NEAR)
    gradient = (call["dy0"] / items_of(op)) * np.where(same, 1, unlike)[:, None] * difference
    if "dx0" in call:
        call["dx0"][...] = gradient.reshape(call["dx0"].shape)
    if "dx1" in call:
        call["dx1"][...] = -gradient.reshape(call["dx1"].shape)
