"""Activations, with the derivative from a bit, from x and from y, and with a count that is no multiple of anything."""

from __future__ import annotations

import numpy as np
import pytest

from layermem.ops import Pointwise
from tests.backends.cuda.harness import Case, layer_of
from tests.cases import select
from tests.layers.harness import with_saved

SHAPES = [(2, 3, 7, 5), (3, 36), (1, 20, 13, 9), (5,), (4100,)]
CASES = [case for case in select("medium", formula=True) if isinstance(case.layer().record, Pointwise)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_values_and_slopes_agree_with_double_precision(case, shape, rng):
    layer = case.at(shape).layer()
    Case(layer, case.inputs(layer, rng)[0], rng=rng).check()


@pytest.mark.parametrize("kept", ["x0", "y0"])
@pytest.mark.parametrize("text", ['type: "ReLU"', 'type: "Clip" clip_param { min: -0.5 max: 1 }'])
def test_a_derivative_may_come_from_a_blob_that_is_saved_anyway(text, kept, rng):
    layer = layer_of(text, (3, 5, 4, 3))
    with_saved(layer, frozenset({kept}))
    Case(layer, [rng.standard_normal((3, 5, 4, 3))], rng=rng).check()


@pytest.mark.parametrize("shared", ["true", "false"])
@pytest.mark.parametrize("shape", [(2, 3, 7, 5), (3, 36), (16, 20, 13, 9), (3, 4, 5), (700, 3)], ids=str)
def test_prelu_learns_its_slopes(shape, shared, rng):
    layer = layer_of(f'type: "PReLU" prelu_param {{ channel_shared: {shared} }}', shape)
    x, w = rng.standard_normal(shape), rng.standard_normal(layer.params[0].tensor.shape)
    Case(layer, [x], [w], bounds={"dw0": 1e-5}, rng=rng).check()


def test_a_relu_makes_no_nan_of_negative_infinity():
    layer = layer_of('type: "ReLU"', (4,))
    got = Case(layer, [np.array([1.0, -np.inf, 0.0, -1.0])]).check()
    assert got["y0"].tolist() == [1.0, 0.0, 0.0, 0.0]
