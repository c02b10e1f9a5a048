"""Reduction and ArgMax from any axis on."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.cuda.harness import Case, layer_of


@pytest.mark.parametrize("operation", ["SUM", "MEAN", "ASUM", "SUMSQ"])
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("shape", [(3, 4, 5, 7), (2, 3, 1, 400)], ids=str)
def test_axes_become_one_number(operation, axis, shape, rng):
    layer = layer_of(f'type: "Reduction" reduction_param {{ operation: {operation} axis: {axis} coeff: 0.5 }}', shape)
    Case(layer, [rng.standard_normal(shape)], bounds={"y0": 1e-5}, rng=rng).check()


@pytest.mark.parametrize("settings", ["", "out_max_val: true", "axis: 1", "axis: 2 out_max_val: true", "axis: 3"])
@pytest.mark.parametrize("top", [1, 3])
def test_the_largest_are_found(settings, top, rng):
    layer = layer_of(f'type: "ArgMax" argmax_param {{ {settings} top_k: {top} }}', (3, 5, 4, 7))
    Case(layer, [rng.standard_normal((3, 5, 4, 7))], rng=rng).check()


def test_of_equal_elements_the_one_further_back_comes_first(rng):
    layer = layer_of('type: "ArgMax" argmax_param { axis: 1 top_k: 4 }', (6, 40))
    x = rng.integers(-1, 2, (6, 40)).astype(float)
    x[x == 0] *= np.where(rng.random((6, 40)) < 0.5, -1, 1)[x == 0]  # zeros of both signs are equal
    Case(layer, [x], rng=rng).check()
