"""Several layers as one op: the same numbers as one after the other, and right gradients."""

from dataclasses import replace

import numpy as np
import pytest

from layermem.graph.fusion import EpilogueEmitter
from tests.cases import CASES
from tests.layers.harness import Run, backward, batch_norm_scale, check_gradients, forward, layer_of, wants_of

SHAPE = (3, 4, 5, 2)


def arguments():
    rng = np.random.default_rng(3)
    x = rng.standard_normal(SHAPE)
    ws = [np.zeros(4), np.zeros(4), np.zeros(1), rng.standard_normal(4), rng.standard_normal(4)]
    return x, ws


@pytest.mark.parametrize("relu", [True, False])
def test_a_fused_op_gives_the_results_of_its_layers_in_turn(relu):
    x, ws = arguments()
    run = forward(batch_norm_scale(SHAPE, relu=relu), x, ws=ws)
    y = forward(layer_of('type: "BatchNorm"', SHAPE), x, ws=ws[:3]).arrays["y0"]
    y = forward(layer_of('type: "Scale" scale_param { bias_term: true }', SHAPE), y, ws=ws[3:]).arrays["y0"]
    np.testing.assert_array_equal(run.arrays["y0"], np.maximum(y, 0) if relu else y)


def test_a_recomputation_gives_the_same_bits_and_moves_no_average():
    x, ws = arguments()
    run = forward(batch_norm_scale(SHAPE, relu=True), x, ws=ws)
    again = Run(run.layer, {role: run.arrays[role] for role in ("x0", "mean", "inv_std", "w3", "w4")})
    again.step(run.layer.recompute())
    np.testing.assert_array_equal(again.arrays["y0"], run.arrays["y0"])


@pytest.mark.parametrize("relu", [True, False])
def test_gradients(relu):
    x, ws = arguments()
    check_gradients(batch_norm_scale(SHAPE, relu=relu), x, ws=ws, tolerance=1e-5)


@pytest.mark.parametrize("wants", [["dx0"], ["dw3"], ["dw4", "dx0"]])
def test_only_the_gradients_that_are_wanted_are_written(wants):
    x, ws = arguments()
    run = backward(forward(batch_norm_scale(SHAPE, relu=True), x, ws=ws), wants, np.ones(SHAPE))
    assert {role for role in run.arrays if role[0] == "d" and role != "dy0"} == set(wants)


# -- a residual and a ReLU in the epilogue -----------------------------------------------------------------------------

FUSED = [case for case in CASES.values() if {"small", "medium"} & set(case.sizes) and (case.relu or case.residual)]
RELUS = pytest.mark.parametrize("relu", [True, False])


def summed(kind: str, relu: bool):
    """A layer with a residual; bottoms and weights for it."""
    case = CASES[f"{kind} + residual{' + ReLU' * relu}"]
    layer = case.layer()
    return layer, *case.inputs(layer, np.random.default_rng(5))


@pytest.mark.parametrize("case", FUSED, ids=lambda case: case.name)
def test_an_epilogue_gives_what_the_layers_give_in_turn_and_keeps_a_bit_for_each_sign(case):
    layer, inner = case.layer(), replace(case, relu=False, residual=False).layer()
    xs, ws = case.inputs(layer, np.random.default_rng(5))
    run = forward(layer, *xs, ws=ws)
    y = forward(inner, *xs[: len(inner.bottoms)], ws=ws).arrays["y0"] + (xs[-1] if case.residual else 0)
    np.testing.assert_array_equal(run.arrays["y0"], np.maximum(y, 0) if case.relu else y)
    if "mask" in layer.stash:
        above = forward(layer_of('type: "ReLU"', y.shape), y)
        np.testing.assert_array_equal(run.arrays["mask"], above.arrays["mask"])


@pytest.mark.parametrize("case", [case for case in FUSED if case.relu], ids=lambda case: case.name)
def test_backward_reads_the_mask_unless_y_is_saved_anyway(case):
    layer = case.layer()
    first = layer.backward(wants_of(layer))[0]
    if "mask" in layer.stash:  # a normalized ReLU recomputes its sign
        assert ("y0" if case.saved else "mask") in first.reads and ("mask" if case.saved else "y0") not in first.reads


def test_a_recomputed_sum_gives_the_same_bits_and_moves_no_average():
    layer, (x, z), ws = summed("BatchNorm + Scale", True)
    run = forward(layer, x, z, ws=ws)
    again = Run(layer, {role: run.arrays[role] for role in ("x0", "x1", "mean", "inv_std", "w3", "w4")})
    again.step(layer.recompute())
    for role in ("y0", "mask"):
        np.testing.assert_array_equal(again.arrays[role], run.arrays[role])


@RELUS
@pytest.mark.parametrize("wants", [["dx1"], ["dw0"], ["dx0", "dx1"]])
def test_a_sum_gives_only_the_gradients_that_are_wanted(wants, relu):
    layer, xs, ws = summed("Convolution 2x2", relu)
    run = backward(forward(layer, *xs, ws=ws), wants, np.ones(layer.tops[0].shape))
    assert {role for role in run.arrays if role[0] == "d" and role != "dy0"} == set(wants)


def test_the_gradient_of_what_is_added_is_written_last_and_may_lie_on_that_of_the_sum():
    layer, *_ = summed("BatchNorm + Scale", True)
    last = layer.backward(["dx0", "dx1", "dw3", "dw4"])[-1]
    assert (last.reads, last.writes) == (("dy0",), ("dx1",))
    assert [(overlay.out, overlay.over) for overlay in last.overlays] == [("dx1", "dy0")]


def test_a_fused_op_has_the_names_and_bottoms_of_its_layers():
    inner = CASES["Convolution 2x2"].layer()
    shape = inner.tops[0].shape
    total = layer_of('type: "Eltwise" name: "sum" bottom: "z" bottom: "y"', shape, shape)
    layer = EpilogueEmitter(inner, total, 0, layer_of('type: "ReLU" name: "r"', shape))
    assert layer.name == f"{inner.name}+sum+r"
    assert layer.bottom_names == (inner.bottom_names[0], "z")
