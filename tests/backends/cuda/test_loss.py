"""Losses against targets, also where the bottoms name their axes differently."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.cuda.harness import Case, layer_of

PAIRS = [
    ((5, 37), (5, 37)),
    ((2, 3, 7, 5), (2, 3, 7, 5)),
    ((2, 3, 7, 5), (2, 105)),
    ((2, 105), (2, 3, 7, 5)),
    ((3, 4000), (3, 4000)),
]


@pytest.mark.parametrize("shapes", PAIRS, ids=str)
def test_the_euclidean_loss_agrees_with_double_precision(shapes, rng):
    layer = layer_of('type: "EuclideanLoss"', *shapes)
    Case(layer, [rng.standard_normal(s) for s in shapes], rng=rng).check()


@pytest.mark.parametrize("settings", ["", "ignore_label: 1", "ignore_label: 1 normalization: VALID"])
@pytest.mark.parametrize("shapes", PAIRS, ids=str)
def test_the_sigmoid_cross_entropy_agrees_with_double_precision(shapes, settings, rng):
    layer = layer_of(f'type: "SigmoidCrossEntropyLoss" loss_param {{ {settings} }}', *shapes)
    targets = rng.choice([0.0, 0.25, 0.5, 1.0], shapes[1])
    Case(layer, [3 * rng.standard_normal(shapes[0]), targets], bounds={"dx0": 4e-6}, rng=rng).check()


@pytest.mark.parametrize("norm", ["L1", "L2"])
@pytest.mark.parametrize("shape", [(37, 10), (3, 4, 5, 2), (600, 7)], ids=str)
def test_the_hinge_loss_agrees_with_double_precision(shape, norm, rng):
    layer = layer_of(f'type: "HingeLoss" hinge_loss_param {{ norm: {norm} }}', shape, shape[:1])
    classes = int(np.prod(shape[1:]))
    Case(layer, [rng.standard_normal(shape), rng.integers(0, classes, shape[0])], rng=rng).check()


@pytest.mark.parametrize("shape", [(37, 10), (3, 4, 5, 2)], ids=str)
def test_the_multinomial_loss_agrees_with_double_precision(shape, rng):
    layer = layer_of('type: "MultinomialLogisticLoss"', shape, shape[:1])
    classes = int(np.prod(shape[1:]))
    probabilities = rng.random(shape)
    probabilities[0] = 0  # no less than 1e-20 is taken
    Case(layer, [probabilities, rng.integers(0, classes, shape[0])], rng=rng).check()


@pytest.mark.parametrize("legacy", ["true", "false"])
@pytest.mark.parametrize("shape", [(37, 5), (4, 70, 1, 1)], ids=str)
def test_the_contrastive_loss_agrees_with_double_precision(shape, legacy, rng):
    text = f'type: "ContrastiveLoss" contrastive_loss_param {{ margin: 3 legacy_version: {legacy} }}'
    layer = layer_of(text, shape, shape, shape[:1])
    same = rng.integers(0, 2, shape[0])
    Case(layer, [rng.standard_normal(shape), rng.standard_normal(shape), same], rng=rng).check()


def test_a_nan_in_the_scores_is_a_nan_in_the_loss():
    for kind in ("HingeLoss", "SoftmaxWithLoss", "MultinomialLogisticLoss"):
        layer = layer_of(f'type: "{kind}"', (2, 3), (2,))
        scores = np.ones((2, 3))
        scores[1, 2] = np.nan
        got = Case(layer, [scores, np.array([0, 2])]).run_unchecked()
        assert np.isnan(got["y0"])
