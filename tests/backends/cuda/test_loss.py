"""Losses and accuracy of NaN, and with labels that are ignored or wrong."""

from __future__ import annotations

import numpy as np
import pytest

from layermem.errors import InputError
from tests.backends.cuda.harness import Case, layer_of


def test_a_loss_of_ignored_labels_alone_is_zero(rng):
    layer = layer_of('type: "SoftmaxWithLoss" loss_param { ignore_label: 255 }', (4, 3), (4,))
    got = Case(layer, [rng.standard_normal((4, 3)), np.full(4, 255.0)], rng=rng).check()
    assert got["y0"] == 0 and not got["dx0"].any()


@pytest.mark.parametrize("label", [3.0, -1.0, 1e20, np.nan])
@pytest.mark.parametrize("kind", ["SoftmaxWithLoss", "Accuracy", "HingeLoss", "MultinomialLogisticLoss"])
def test_an_invalid_label_is_reported(kind, label):
    layer = layer_of(f'type: "{kind}"', (4, 3), (4,))
    case = Case(layer, [np.ones((4, 3)), np.array([0, 1, label, 2])])
    with pytest.raises(InputError, match="reads label"):
        case.run_unchecked()


def test_a_nan_in_the_scores_is_a_nan_in_the_loss():
    for kind in ("HingeLoss", "SoftmaxWithLoss", "MultinomialLogisticLoss"):
        layer = layer_of(f'type: "{kind}"', (2, 3), (2,))
        scores = np.ones((2, 3))
        scores[1, 2] = np.nan
        got = Case(layer, [scores, np.array([0, 2])]).run_unchecked()
        assert np.isnan(got["y0"])
