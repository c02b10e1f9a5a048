"""Transpositions of several items by one block."""

from __future__ import annotations

import pytest

from tests.backends.cuda.harness import Case, Way, layer_of
from tests.emulator.emulate import WAYS


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_a_block_of_a_transposition_may_take_several_items(way, rng, monkeypatch):
    monkeypatch.setattr("layermem.backends.cuda.copy.MAX_ITEMS", 2)
    shape = (5, 3, 4, 9)
    Case(layer_of('type: "Flatten"', shape), [rng.standard_normal(shape)], rng=rng, way=Way(*way)).check()
