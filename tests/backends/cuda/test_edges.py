"""Layers at the edges of their kernels' blocks (tests/cases), on emulated kernels in fp32 against the reference."""

from __future__ import annotations

import pytest

from tests.backends.cuda.harness import Case
from tests.cases import select

MOVES = ("Concat", "Slice", "Split", "Flatten", "Reshape", "Tile", "Crop", "Permute")
BOUNDS = {kind: {"dx0": 1e-7} for kind in MOVES}  # bounds other than the harness's, by type of layer


@pytest.mark.parametrize("case", select("edges"), ids=lambda case: case.name)
def test_a_layer_agrees_with_double_precision(case, rng):
    layer = case.layer("edges")
    Case(layer, *case.inputs(layer, rng), bounds=BOUNDS.get(layer.type, {}), rng=rng).check()
