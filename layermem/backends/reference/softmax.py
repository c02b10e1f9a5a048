"""Scores of classes: each kernel reads x as rows [positions, classes], with positions in Caffe's order."""

from __future__ import annotations

import numpy as np

from layermem.backends.reference.base import Array, ReferenceCall, kernel
from layermem.backends.reference.loss import divisor, labels_of, loss_bytes, write_loss
from layermem.ops import WHOLE, Accuracy, InfogainLoss, Scores, Softmax, SoftmaxLoss
from layermem.ops.softmax import LARGEST_LOSS, SMALLEST_SHARE


def rows(op: Scores, x: Array) -> Array:
    """[rows, classes] in one layout: with a batch of one item they may be a strided view, which NumPy sums in another
    order."""
    return np.ascontiguousarray(np.moveaxis(x, op.along, -1).reshape(-1, op.classes))


def store(op: Scores, into: Array, values: Array) -> None:
    last = np.moveaxis(into, op.along, -1)
    last[...] = values.reshape(last.shape)


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    shares: Array = powers / powers.sum(axis=1, keepdims=True)
    return shares


@kernel(Softmax, "forward")
def softmax_forward(op: Softmax, call: ReferenceCall) -> None:
    store(op, call["y0"], softmax(rows(op, call["x0"])))


@kernel(Softmax, "backward")
def softmax_backward(op: Softmax, call: ReferenceCall) -> None:
    y, dy = rows(op, call["y0"]), rows(op, call["dy0"])
    store(op, call["dx0"], y * (dy - (y * dy).sum(axis=1, keepdims=True)))


def valid_labels(op: SoftmaxLoss | InfogainLoss | Accuracy, call: ReferenceCall, label: Array) -> tuple[Array, Array]:
    """Labels, with ignored ones as 0, and whether each counts."""
    labels = labels_of(op, call, label, op.ignore_label)
    valid = np.ones(labels.shape, bool) if op.ignore_label is None else labels != op.ignore_label
    return np.where(valid, labels, 0), valid


def by_item(op: Scores, positions: Array) -> Array:
    """[items, positions of an item], if the batch and the classes are on different axes."""
    return positions.reshape(op.x.shape[0] if op.along else 1, -1)


def label_divisor(op: SoftmaxLoss | InfogainLoss, call: ReferenceCall, valid: Array) -> int:
    """The divisor of the loss: in a slice, labels of the whole batch count."""
    if f"x1{WHOLE}" in call:
        _, valid = valid_labels(op, call, call[f"x1{WHOLE}"])
    return divisor(op.normalizer, valid)


@kernel(SoftmaxLoss, "forward", carry=loss_bytes)
def softmax_loss_forward(op: SoftmaxLoss, call: ReferenceCall) -> None:
    x = rows(op, call["x0"])
    labels, valid = valid_labels(op, call, call["x1"])
    shifted = x - x.max(axis=1, keepdims=True)
    each = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(x)), labels]
    each = np.where(each > LARGEST_LOSS, LARGEST_LOSS, each)  # keeps NaN
    write_loss(op, call, by_item(op, np.where(valid, each, 0)), label_divisor(op, call, valid))
    if "y1" in call:
        store(op, call["y1"], softmax(x))


@kernel(SoftmaxLoss, "backward")
def softmax_loss_backward(op: SoftmaxLoss, call: ReferenceCall) -> None:
    labels, valid = valid_labels(op, call, call["x1"])
    gradient = softmax(rows(op, call["x0"]))
    gradient[np.arange(len(gradient)), labels] -= 1
    scale = call["dy0"] / label_divisor(op, call, valid)
    store(op, call["dx0"], np.where(valid[:, None], scale * gradient, 0))


def matrix_rows(op: InfogainLoss, call: ReferenceCall, labels: Array) -> Array:
    """The row of the matrix for each label."""
    chosen: Array = call["x2"].reshape(op.classes, op.classes)[labels]
    return chosen


@kernel(InfogainLoss, "forward", carry=loss_bytes)
def infogain_loss_forward(op: InfogainLoss, call: ReferenceCall) -> None:
    shares = softmax(rows(op, call["x0"]))
    labels, valid = valid_labels(op, call, call["x1"])
    each = -(matrix_rows(op, call, labels) * np.log(np.maximum(shares, SMALLEST_SHARE))).sum(axis=1)
    write_loss(op, call, by_item(op, np.where(valid, each, 0)), label_divisor(op, call, valid))
    if "y1" in call:
        store(op, call["y1"], shares)


@kernel(InfogainLoss, "backward")
def infogain_loss_backward(op: InfogainLoss, call: ReferenceCall) -> None:
    labels, valid = valid_labels(op, call, call["x1"])
    counted = matrix_rows(op, call, labels)
    gradient = softmax(rows(op, call["x0"])) * counted.sum(axis=1, keepdims=True) - counted
    scale = call["dy0"] / label_divisor(op, call, valid)
    store(op, call["dx0"], np.where(valid[:, None], scale * gradient, 0))


@kernel(Accuracy, "forward")
def accuracy_forward(op: Accuracy, call: ReferenceCall) -> None:
    x = rows(op, call["x0"])
    labels, valid = valid_labels(op, call, call["x1"])
    own = x[np.arange(len(x)), labels]
    rivals = (x >= own[:, None]).sum(axis=1) - 1
    correct = valid & (rivals < op.top_k) & ~np.isnan(own)  # a NaN never counts, neither as a rival nor as correct
    call["y0"][...] = correct.sum() / max(1, int(valid.sum()))
    if "y1" in call:
        counts = np.bincount(labels[valid], minlength=op.classes)
        call["y1"][...] = np.bincount(labels[correct], minlength=op.classes) / np.maximum(counts, 1)
