"""Scores of classes: each kernel sees x as rows [positions, classes], positions in Caffe's order."""

from __future__ import annotations

from typing import Any

import numpy as np

from layermem.backends.reference.base import Buffers, kernel
from layermem.backends.reference.loss import labels_of, normalizer


def rows(layer: Any, x: np.ndarray) -> np.ndarray:
    return np.moveaxis(x, layer.along, -1).reshape(-1, layer.classes)


def store(layer: Any, into: np.ndarray, values: np.ndarray) -> None:
    last = np.moveaxis(into, layer.along, -1)
    last[...] = values.reshape(last.shape)


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


@kernel("Softmax.forward")
def softmax_forward(layer: Any, b: Buffers) -> None:
    store(layer, b.y, softmax(rows(layer, b.x)))


@kernel("Softmax.backward")
def softmax_backward(layer: Any, b: Buffers) -> None:
    y, dy = rows(layer, b.y), rows(layer, b.dy)
    store(layer, b.dx, y * (dy - (y * dy).sum(axis=1, keepdims=True)))


def judged(layer: Any, label: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Labels, an ignored one as 0, and which of them count."""
    labels = labels_of(layer, label, layer.classes)
    valid = np.ones(labels.shape, bool) if layer.ignore_label is None else labels != layer.ignore_label
    return np.where(valid, labels, 0), valid


@kernel("SoftmaxWithLoss.forward")
def softmax_loss_forward(layer: Any, b: Buffers) -> None:
    x = rows(layer, b.x0)
    labels, valid = judged(layer, b.x1)
    shifted = x - x.max(axis=1, keepdims=True)
    each = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(x)), labels]
    b.y0[...] = np.where(valid, each, 0).sum() / normalizer(layer, valid)
    if b.has("y1"):
        store(layer, b.y1, softmax(x))


@kernel("SoftmaxWithLoss.backward")
def softmax_loss_backward(layer: Any, b: Buffers) -> None:
    labels, valid = judged(layer, b.x1)
    gradient = softmax(rows(layer, b.x0))
    gradient[np.arange(len(gradient)), labels] -= 1
    scale = b.dy / normalizer(layer, valid)
    store(layer, b.dx, np.where(valid[:, None], scale * gradient, 0))


@kernel("Accuracy.forward")
def accuracy_forward(layer: Any, b: Buffers) -> None:
    x = rows(layer, b.x0)
    labels, valid = judged(layer, b.x1)
    own = x[np.arange(len(x)), labels]
    rivals = (x >= own[:, None]).sum(axis=1) - 1
    found = valid & (rivals < layer.top_k) & ~np.isnan(own)  # a NaN is nobody's rival, nor is it found
    b.y0[...] = found.sum() / max(1, int(valid.sum()))
    if b.has("y1"):
        counts = np.bincount(labels[valid], minlength=layer.classes)
        b.y1[...] = np.bincount(labels[found], minlength=layer.classes) / np.maximum(counts, 1)
