"""Losses against targets.  Sums run over whole arrays; gradients are complete before they are stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from layermem.backends.reference.activation import sigmoid
from layermem.backends.reference.base import Buffers, kernel
from layermem.errors import InputError

SMALLEST = 1e-20  # probability that MultinomialLogisticLoss still takes the logarithm of
NEAR = 1e-4  # keeps ContrastiveLoss from dividing by a distance of 0


def labels_of(layer: Any, label: np.ndarray, classes: int) -> np.ndarray:
    """Labels as whole numbers, with the ignored ones left as they are; InputError if another is no class."""
    whole = label.astype(np.int64).reshape(-1)
    ignored = getattr(layer, "ignore_label", None)
    wrong = ((whole < 0) | (whole >= classes)) & (whole != ignored if ignored is not None else True)
    if wrong.any():
        raise InputError(
            f"reads label {whole[wrong][0]}, but has scores for {classes} classes: 0 to {classes - 1}; "
            "mend the data, or set ignore_label",
            layer=layer.name,
        )
    return whole


def normalizer(layer: Any, valid: np.ndarray) -> int:
    counted = int(np.count_nonzero(valid)) if layer.normalizer is None else layer.normalizer
    return max(1, counted)


# -- EuclideanLoss ---------------------------------------------------------------------------------------------


@kernel("EuclideanLoss.forward")
def euclidean_forward(layer: Any, b: Buffers) -> None:
    difference = b.x0 - b.x1.reshape(b.x0.shape)
    b.y[...] = np.square(difference).sum() / (2 * layer.items)


@kernel("EuclideanLoss.backward")
def euclidean_backward(layer: Any, b: Buffers) -> None:
    gradient = (b.dy / layer.items) * (b.x0 - b.x1.reshape(b.x0.shape))
    if b.has("dx0"):
        b.dx0[...] = gradient
    if b.has("dx1"):
        b.dx1[...] = -gradient.reshape(b.dx1.shape)


# -- SigmoidCrossEntropyLoss -------------------------------------------------------------------------------------


def targets(layer: Any, b: Buffers) -> tuple[np.ndarray, np.ndarray]:
    """Targets under the axes of x, and which of them count."""
    t = b.x1.reshape(b.x0.shape)
    if layer.ignore_label is None:
        return t, np.ones(t.shape, bool)
    return t, t.astype(np.int64) != layer.ignore_label


@kernel("SigmoidCrossEntropyLoss.forward")
def sigmoid_cross_entropy_forward(layer: Any, b: Buffers) -> None:
    x = b.x0
    t, valid = targets(layer, b)
    # -t ln s(x) - (1 - t) ln(1 - s(x)), without a number that overflows
    each = np.maximum(x, 0) - x * t + np.log1p(np.exp(-np.abs(x)))
    b.y[...] = np.where(valid, each, 0).sum() / normalizer(layer, valid)


@kernel("SigmoidCrossEntropyLoss.backward")
def sigmoid_cross_entropy_backward(layer: Any, b: Buffers) -> None:
    t, valid = targets(layer, b)
    b.dx[...] = np.where(valid, (b.dy / normalizer(layer, valid)) * (sigmoid(b.x0) - t), 0)


# -- HingeLoss, MultinomialLogisticLoss ------------------------------------------------------------------------------


def at_label(layer: Any, label: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Index of each item's label in an array [items, classes]."""
    return np.arange(layer.items), labels_of(layer, label, layer.classes)


def hinges(layer: Any, b: Buffers) -> tuple[np.ndarray, np.ndarray]:
    """Signs (-1 at the label, else 1) and max(0, 1 + sign x), both [items, classes]."""
    x = b.x0.reshape(layer.items, layer.classes)
    sign = np.ones_like(x)
    sign[at_label(layer, b.x1)] = -1
    return sign, np.maximum(0, 1 + sign * x)


@kernel("HingeLoss.forward")
def hinge_forward(layer: Any, b: Buffers) -> None:
    _, over = hinges(layer, b)
    b.y[...] = (np.square(over) if layer.squared else over).sum() / layer.items


@kernel("HingeLoss.backward")
def hinge_backward(layer: Any, b: Buffers) -> None:
    sign, over = hinges(layer, b)
    slope = 2 * over if layer.squared else np.sign(over)
    b.dx[...] = ((b.dy / layer.items) * sign * slope).reshape(b.dx.shape)


@kernel("MultinomialLogisticLoss.forward")
def multinomial_forward(layer: Any, b: Buffers) -> None:
    p = b.x0.reshape(layer.items, layer.classes)[at_label(layer, b.x1)]
    b.y[...] = -np.log(np.maximum(p, SMALLEST)).sum() / layer.items


@kernel("MultinomialLogisticLoss.backward")
def multinomial_backward(layer: Any, b: Buffers) -> None:
    at = at_label(layer, b.x1)
    p = b.x0.reshape(layer.items, layer.classes)
    gradient = np.zeros_like(p)
    gradient[at] = -(b.dy / layer.items) / np.maximum(p[at], SMALLEST)
    b.dx[...] = gradient.reshape(b.dx.shape)


# -- ContrastiveLoss -------------------------------------------------------------------------------------------


def pairs(layer: Any, b: Buffers) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """a - b [N,C], |a - b|^2 [N], and which pairs are the same [N]."""
    difference = (b.x0 - b.x1.reshape(b.x0.shape)).reshape(layer.items, -1)
    return difference, np.square(difference).sum(axis=1), b.x2.astype(np.int64).reshape(-1) != 0


@kernel("ContrastiveLoss.forward")
def contrastive_forward(layer: Any, b: Buffers) -> None:
    _, squared, same = pairs(layer, b)
    if layer.legacy:
        apart = np.maximum(layer.margin - squared, 0)
    else:
        apart = np.square(np.maximum(layer.margin - np.sqrt(squared), 0))
    b.y[...] = np.where(same, squared, apart).sum() / (2 * layer.items)


@kernel("ContrastiveLoss.backward")
def contrastive_backward(layer: Any, b: Buffers) -> None:
    difference, squared, same = pairs(layer, b)
    if layer.legacy:
        apart = -np.sign(np.maximum(layer.margin - squared, 0))
    else:
        distance = np.sqrt(squared)
        apart = -np.maximum(layer.margin - distance, 0) / (distance + NEAR)
    gradient = (b.dy / layer.items) * np.where(same, 1, apart)[:, None] * difference
    if b.has("dx0"):
        b.dx0[...] = gradient.reshape(b.dx0.shape)
    if b.has("dx1"):
        b.dx1[...] = -gradient.reshape(b.dx1.shape)
