"""Layers at the edges of their kernels' blocks (tests/cases), on emulated kernels in fp32 against the reference."""

from __future__ import annotations

import pytest

from tests.backends.cuda.harness import Case
from tests.cases import select

MOVES = ("Concat", "Slice", "Split", "Flatten", "Reshape", "Tile", "Crop", "Permute")
LONG_SUMS = {"dw0": 1e-5, "dw1": 1e-5, "dx1": 1e-5}
BOUNDS = {  # other than those of the harness, by type of layer
    **{kind: {"dx0": 1e-7} for kind in MOVES},
    **dict.fromkeys(("InnerProduct", "PReLU", "Scale", "Bias"), LONG_SUMS),
    "BatchNorm": {"y0": 4e-6, "dx0": 1e-5, "inv_std": 4e-6, "w1": 4e-6},
    "LRN": {"dx0": 4e-6},
    "Reduction": {"y0": 1e-5},
    "Softmax": {"dx0": 5e-6},
    "SoftmaxWithLoss": {"dx0": 5e-6},
    "SigmoidCrossEntropyLoss": {"dx0": 4e-6},
}


@pytest.mark.parametrize("case", select("edges"), ids=lambda case: case.name)
def test_a_layer_agrees_with_double_precision(case, rng):
    layer = case.layer("edges")
    Case(layer, *case.inputs(layer, rng), bounds=BOUNDS.get(layer.type, {}), rng=rng).check()
