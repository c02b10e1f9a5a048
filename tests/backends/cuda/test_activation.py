"""Activations, over counts that are no multiples of anything."""

from __future__ import annotations

import numpy as np
import pytest

from layermem.ops import Pointwise
from tests.backends.cuda.harness import Case, layer_of
from tests.cases import select
from tests.cases.activation import ELEMENTWISE, FEW

CASES = [case for case in select("medium", formula=True) if isinstance(case.layer().record, Pointwise)]


@pytest.mark.parametrize("shape", [*ELEMENTWISE, FEW], ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_values_and_slopes_agree_with_double_precision(case, shape, rng):
    layer = case.at(shape).layer()
    Case(layer, case.inputs(layer, rng)[0], rng=rng).check()


def test_a_relu_makes_no_nan_of_negative_infinity():
    layer = layer_of('type: "ReLU"', (4,))
    got = Case(layer, [np.array([1.0, -np.inf, 0.0, -1.0])]).check()
    assert got["y0"].tolist() == [1.0, 0.0, 0.0, 0.0]
