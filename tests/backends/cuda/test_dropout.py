"""Dropout, whose words depend on nothing but their counter."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.cuda.harness import CONTEXT, Case, layer_of
from tests.cases.activation import ELEMENTWISE


@pytest.mark.parametrize("shape", ELEMENTWISE, ids=str)
@pytest.mark.parametrize("step", [3, 2**40 + 7])
def test_dropout_draws_the_words_of_its_definition(shape, step, rng):
    layer = layer_of('type: "Dropout" dropout_param { dropout_ratio: 0.3 }', shape)
    got = Case(layer, [rng.standard_normal(shape)], rng=rng, context={**CONTEXT, "step": step}).check()
    dropped = np.mean(got["y0"] == 0)
    assert 0.1 < dropped < 0.5


def test_dropout_is_the_identity_in_a_test_net(rng):
    layer = layer_of('type: "Dropout"', (3, 37), phase=1)
    Case(layer, [rng.standard_normal((3, 37))], rng=rng, bounds={"y0": 0.0, "dx0": 0.0}).check()
