"""Softmax, its loss and accuracy, along any axis, with labels that are ignored, unusual, or wrong."""

from __future__ import annotations

import numpy as np
import pytest

from layermem.errors import InputError
from tests.backends.cuda.harness import Case, layer_of

# axis, shape of the scores, shape of the labels
LINES = {
    "rows": (1, (37, 10), (37,)),
    "many classes": (1, (5, 1000), (5, 1)),
    "pixels": (1, (2, 21, 5, 7), (2, 1, 5, 7)),
    "pixels with plain labels": (1, (2, 21, 5, 7), (2, 5, 7)),
    "planes of three axes": (1, (3, 6, 40), (3, 40)),
    "rows of an image": (2, (2, 5, 4, 3), (2, 5, 3)),
    "two classes": (1, (300, 2), (300,)),
}


def scores_and_labels(rng, axis, shape, labels):
    classes = shape[axis]
    return [3 * rng.standard_normal(shape), rng.integers(0, classes, labels).astype(float)]


@pytest.mark.parametrize("name", LINES)
def test_softmax_agrees_with_double_precision(name, rng):
    axis, shape, _ = LINES[name]
    layer = layer_of(f'type: "Softmax" softmax_param {{ axis: {axis} }}', shape)
    Case(layer, [3 * rng.standard_normal(shape)], bounds={"dx0": 5e-6}, rng=rng).check()


@pytest.mark.parametrize("settings", ["", "loss_param { ignore_label: 1 }", "loss_param { normalization: BATCH_SIZE }"])
@pytest.mark.parametrize("tops", [1, 2])
@pytest.mark.parametrize("name", LINES)
def test_the_softmax_loss_agrees_with_double_precision(name, tops, settings, rng):
    axis, shape, labels = LINES[name]
    names = "".join(f'top: "y{i}" ' for i in range(tops))
    layer = layer_of(f'type: "SoftmaxWithLoss" {names} softmax_param {{ axis: {axis} }} {settings}', shape, labels)
    Case(layer, scores_and_labels(rng, axis, shape, labels), bounds={"dx0": 5e-6}, rng=rng).check()


@pytest.mark.parametrize("name", LINES)
def test_the_softmax_loss_of_a_hopeless_score_saturates(name, rng):
    axis, shape, labels = LINES[name]
    layer = layer_of(f'type: "SoftmaxWithLoss" softmax_param {{ axis: {axis} }}', shape, labels)
    scores, label = scores_and_labels(rng, axis, shape, labels)
    got = Case(layer, [100 * scores, label], bounds={"dx0": 5e-6}, rng=rng).check()
    plain = Case(layer, [scores, label], rng=rng).check()
    assert plain["y0"] < got["y0"] <= -np.log(np.finfo(np.float32).tiny)


def test_a_loss_of_ignored_labels_alone_is_zero(rng):
    layer = layer_of('type: "SoftmaxWithLoss" loss_param { ignore_label: 255 }', (4, 3), (4,))
    got = Case(layer, [rng.standard_normal((4, 3)), np.full(4, 255.0)], rng=rng).check()
    assert got["y0"] == 0 and not got["dx0"].any()


@pytest.mark.parametrize("settings", ["", "top_k: 2", "ignore_label: 1"])
@pytest.mark.parametrize("tops", [1, 2])
@pytest.mark.parametrize("name", LINES)
def test_accuracy_counts_what_double_precision_counts(name, tops, settings, rng):
    axis, shape, labels = LINES[name]
    names = "".join(f'top: "y{i}" ' for i in range(tops))
    layer = layer_of(f'type: "Accuracy" {names} accuracy_param {{ axis: {axis} {settings} }}', shape, labels)
    Case(layer, scores_and_labels(rng, axis, shape, labels), rng=rng).check()


def test_ties_are_misses(rng):
    layer = layer_of('type: "Accuracy" accuracy_param { top_k: 2 }', (200, 5), (200,))
    scores = rng.integers(0, 3, (200, 5)).astype(float)
    Case(layer, [scores, rng.integers(0, 5, 200).astype(float)], rng=rng).check()


@pytest.mark.parametrize("label", [3.0, -1.0, 1e20, np.nan])
@pytest.mark.parametrize("kind", ["SoftmaxWithLoss", "Accuracy", "HingeLoss", "MultinomialLogisticLoss"])
def test_an_invalid_label_is_reported(kind, label):
    layer = layer_of(f'type: "{kind}"', (4, 3), (4,))
    case = Case(layer, [np.ones((4, 3)), np.array([0, 1, label, 2])])
    with pytest.raises(InputError, match="reads label"):
        case.run_unchecked()
