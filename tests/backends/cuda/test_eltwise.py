"""Eltwise in its three operations, and dropout, whose words depend on nothing but their counter."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.cuda.harness import CONTEXT, Case, layer_of

SHAPES = [(2, 3, 7, 5), (7, 36), (4100,)]


@pytest.mark.parametrize("operation", ["SUM", "PROD", "MAX"])
@pytest.mark.parametrize("count", [2, 3, 7])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_blobs_are_combined_in_the_order_of_the_bottoms(operation, count, shape, rng):
    layer = layer_of(f'type: "Eltwise" eltwise_param {{ operation: {operation} }}', *[shape] * count)
    Case(layer, [rng.standard_normal(shape) for _ in range(count)], rng=rng).check()


def test_a_sum_takes_coefficients(rng):
    layer = layer_of('type: "Eltwise" eltwise_param { coeff: 1 coeff: -0.5 coeff: 2 }', *[(3, 5)] * 3)
    Case(layer, [rng.standard_normal((3, 5)) for _ in range(3)], rng=rng).check()


def test_of_equal_largest_inputs_the_last_wins(rng):
    layer = layer_of('type: "Eltwise" eltwise_param { operation: MAX }', *[(40, 5)] * 3)
    Case(layer, [rng.integers(0, 3, (40, 5)).astype(float) for _ in range(3)], rng=rng).check()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("step", [3, 2**40 + 7])
def test_dropout_draws_the_words_of_its_definition(shape, step, rng):
    layer = layer_of('type: "Dropout" dropout_param { dropout_ratio: 0.3 }', shape)
    got = Case(layer, [rng.standard_normal(shape)], rng=rng, context={**CONTEXT, "step": step}).check()
    dropped = np.mean(got["y0"] == 0)
    assert 0.1 < dropped < 0.5


def test_dropout_is_the_identity_in_a_test_net(rng):
    layer = layer_of('type: "Dropout"', (3, 37), phase=1)
    Case(layer, [rng.standard_normal((3, 37))], rng=rng, bounds={"y0": 0.0, "dx0": 0.0}).check()
