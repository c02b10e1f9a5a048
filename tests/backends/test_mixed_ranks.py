"""Operands of different numbers of axes, of every layer that takes some: the cpu device against the reference."""

from __future__ import annotations

import pytest

from layermem.layers import LAYERS
from tests.backends.test_cpu import compare
from tests.mixed_ranks import FIXED, KINDS, RANKS, mixed


@pytest.mark.whole
def test_every_layer_whose_operands_have_any_number_of_axes_is_in_a_family():
    of_families = {layer.type for kind in KINDS for rank in RANKS for _, layer in mixed(kind, rank)}
    assert {*LAYERS} - of_families <= FIXED and not of_families & FIXED


@pytest.mark.exhaustive(6)
@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_op_on_mixed_ranks_gives_what_the_reference_gives(kind, rank):
    wrong = []
    for case, layer in mixed(kind, rank):
        try:
            compare(layer, *case.values(layer))
        except AssertionError as error:
            wrong.append(f"{case}: {error}")
    assert not wrong, "\n".join([f"{len(wrong)} cases", *wrong[:5]])
