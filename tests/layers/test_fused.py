"""BatchNorm + Scale + ReLU as one op: the same numbers as the three, and right gradients."""

import numpy as np
import pytest

from layermem.layers.fused import BatchNormScale
from tests.layers.harness import Run, backward, check_gradients, forward, layer_of

SHAPE = (3, 4, 5, 2)


def fused_layer(relu: bool = True) -> BatchNormScale:
    norm = layer_of('type: "BatchNorm" name: "n"', SHAPE)
    scale = layer_of('type: "Scale" name: "s" scale_param { bias_term: true }', SHAPE)
    return BatchNormScale(norm, scale, layer_of('type: "ReLU" name: "r"', SHAPE) if relu else None)


def arguments():
    rng = np.random.default_rng(3)
    x = rng.standard_normal(SHAPE)
    ws = [np.zeros(4), np.zeros(4), np.zeros(1), rng.standard_normal(4), rng.standard_normal(4)]
    return x, ws


@pytest.mark.parametrize("relu", [True, False])
def test_it_gives_what_the_layers_give_in_turn(relu):
    x, ws = arguments()
    run = forward(fused_layer(relu), x, ws=ws)
    y = forward(layer_of('type: "BatchNorm"', SHAPE), x, ws=ws[:3]).arrays["y0"]
    y = forward(layer_of('type: "Scale" scale_param { bias_term: true }', SHAPE), y, ws=ws[3:]).arrays["y0"]
    np.testing.assert_array_equal(run.arrays["y0"], np.maximum(y, 0) if relu else y)


def test_a_replay_gives_the_same_bits_and_moves_no_average():
    x, ws = arguments()
    run = forward(fused_layer(), x, ws=ws)
    again = Run(run.layer, {role: run.arrays[role] for role in ("x0", "mean", "inv_std", "w3", "w4")})
    again.step(run.layer.replay())
    np.testing.assert_array_equal(again.arrays["y0"], run.arrays["y0"])


@pytest.mark.parametrize("relu", [True, False])
def test_gradients(relu):
    x, ws = arguments()
    check_gradients(fused_layer(relu), x, ws=ws, tolerance=1e-5)


@pytest.mark.parametrize("wants", [["dx0"], ["dw3"], ["dw4", "dx0"]])
def test_only_the_gradients_that_are_wanted_are_written(wants):
    x, ws = arguments()
    run = backward(forward(fused_layer(), x, ws=ws), wants, np.ones(SHAPE))
    assert {role for role in run.arrays if role[0] == "d" and role != "dy0"} == set(wants)
