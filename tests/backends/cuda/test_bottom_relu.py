"""Pooling and LRN that do the backward of the ReLU before them: the bits of the two ops one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from layermem.ops import NARROW
from tests.backends.cuda.bottom_relu import LRNS, Setting, cleared, lrn, pooling
from tests.backends.cuda.harness import PLAIN, Way, layer_of
from tests.backends.cuda.test_pooling import CASES
from tests.emulator.emulate import WAYS

WORDS = ["", *NARROW]
STRICT = [Way(*way) for way in WAYS if way[0] != "plain"]


def check(*found: np.ndarray) -> None:
    together, apart = found
    assert (together != 0).any()
    np.testing.assert_array_equal(together, apart)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("name", CASES)
def test_max_pooling_lets_no_gradient_through_where_its_maximum_is_not_positive(name, word, rng):
    check(*cleared(pooling(name, "MAX"), Setting(PLAIN, word), rng))


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("method", ["MAX", "AVE"])
@pytest.mark.parametrize("name", CASES)
def test_pooling_clears_its_gradient_by_a_mask(name, method, accumulate, word, rng):
    check(*cleared(pooling(name, method), Setting(PLAIN, word, accumulate), rng, masked=True))


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("name", LRNS)
def test_an_lrn_clears_its_gradient_where_its_bottom_is_not_positive(name, accumulate, word, rng):
    check(*cleared(lrn(name), Setting(PLAIN, word, accumulate), rng))


@pytest.mark.exhaustive(2)
@pytest.mark.parametrize("way", STRICT, ids=lambda way: way.mode)
@pytest.mark.parametrize("name", ["overlapping", "odd size"])
def test_they_stay_in_bounds_and_have_no_races(name, way, rng):
    for masked in (False, True):
        check(*cleared(pooling(name, "MAX"), Setting(way), rng, masked=masked))
    check(*cleared(lrn("across" if name == "overlapping" else "within, one by one"), Setting(way), rng))


def test_an_index_beside_all_taps_of_a_byte_stands_for_none(rng):
    layer = layer_of('type: "Pooling" pooling_param { kernel_h: 15 kernel_w: 17 }', (1, 4, 17, 18))
    assert layer.record.argmax.dtype == "uint8" and layer.record.taps == 255
    check(*cleared(layer, Setting(PLAIN), rng))
