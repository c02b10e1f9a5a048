"""Several layers as one op: the same numbers as one after the other, and right gradients."""

import numpy as np
import pytest

from layermem.graph.fusion import BatchNormScale, Epilogue
from tests.layers.harness import Run, backward, check_gradients, forward, layer_of, with_saved

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
    again.step(run.layer.recompute())
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


# -- a layer that makes sums, and its ReLU -----------------------------------------------------------------------------

SUMS = {
    "convolution": ('type: "Convolution" convolution_param { num_output: 3 kernel_size: 2 pad: 1 }', [SHAPE]),
    "inner product": ('type: "InnerProduct" inner_product_param { num_output: 7 bias_term: false }', [SHAPE]),
    "eltwise": ('type: "Eltwise" eltwise_param { coeff: 1 coeff: -2 coeff: 0.5 }', [SHAPE] * 3),
}


def sums_of(name: str):
    """The layer alone, and with its ReLU; random bottoms and weights for both."""
    text, shapes = SUMS[name]
    rng = np.random.default_rng(5)
    inner = layer_of(text, *shapes)
    both = Epilogue(layer_of(text, *shapes), None, 0, layer_of('type: "ReLU" name: "r"', inner.tops[0].shape))
    xs = [rng.standard_normal(shape) for shape in shapes]
    return inner, both, xs, [rng.standard_normal(p.tensor.shape) for p in inner.params]


@pytest.mark.parametrize("name", SUMS)
def test_a_rectified_sum_is_what_the_two_layers_give_and_keeps_a_bit_for_each(name):
    inner, both, xs, ws = sums_of(name)
    y = forward(inner, *xs, ws=ws).arrays["y0"]
    run = forward(both, *xs, ws=ws)
    np.testing.assert_array_equal(run.arrays["y0"], np.maximum(y, 0))
    relu = forward(layer_of('type: "ReLU"', y.shape), y)
    np.testing.assert_array_equal(run.arrays["mask"], relu.arrays["mask"])


@pytest.mark.parametrize("kept", [frozenset(), frozenset({"y0"})])
@pytest.mark.parametrize("name", SUMS)
def test_gradients_of_a_rectified_sum(name, kept):
    _, both, xs, ws = sums_of(name)
    with_saved(both, kept)
    check_gradients(both, *xs, ws=ws, tolerance=1e-5)


@pytest.mark.parametrize("name", SUMS)
def test_a_rectified_sum_reads_its_mask_unless_y_is_kept_anyway(name):
    _, both, *_ = sums_of(name)
    first = both.backward(["dx0", "dw0"])[0]
    assert "mask" in first.reads and "y0" not in first.reads
    with_saved(both, frozenset({"y0"}))
    first = both.backward(["dx0", "dw0"])[0]
    assert "y0" in first.reads and "mask" not in first.reads


# -- a layer and the sum that adds another blob to its top -------------------------------------------------------------

TERMS = {name: SUMS[name] for name in ("convolution", "inner product")} | {"batch norm": ("", [SHAPE])}
RELUS = pytest.mark.parametrize("relu", [True, False])


def term_of(name: str):
    """The layer alone; random bottoms and weights for it."""
    if name == "batch norm":
        x, ws = arguments()
        return fused_layer(relu=False), [x], ws
    inner, _, xs, ws = sums_of(name)
    return inner, xs, ws


def summed(name: str, relu: bool, added: int = 1):
    """The layer in a sum with bottoms and weights; bottom number `added` of the sum is the other blob."""
    inner, xs, ws = term_of(name)
    shape = inner.tops[0].shape
    total = layer_of('type: "Eltwise" name: "sum"', shape, shape)
    layer = Epilogue(inner, total, added, layer_of('type: "ReLU" name: "r"', shape) if relu else None)
    return layer, [*xs, np.random.default_rng(6).standard_normal(shape)], ws


@RELUS
@pytest.mark.parametrize("name", TERMS)
def test_a_term_in_a_sum_gives_what_the_layers_give_in_turn(name, relu):
    layer, (x, z), ws = summed(name, relu)
    y = forward(term_of(name)[0], x, ws=ws).arrays["y0"] + z
    run = forward(layer, x, z, ws=ws)
    np.testing.assert_array_equal(run.arrays["y0"], np.maximum(y, 0) if relu else y)
    if relu:
        above = forward(layer_of('type: "ReLU"', y.shape), y)
        np.testing.assert_array_equal(run.arrays["mask"], above.arrays["mask"])


@RELUS
@pytest.mark.parametrize("kept", [frozenset(), frozenset({"y0"})])
@pytest.mark.parametrize("name", TERMS)
def test_gradients_of_a_term_in_a_sum(name, kept, relu):
    layer, xs, ws = summed(name, relu)
    with_saved(layer, kept)
    check_gradients(layer, *xs, ws=ws, tolerance=1e-5)


def test_a_replayed_sum_gives_the_same_bits_and_moves_no_average():
    layer, (x, z), ws = summed("batch norm", True)
    run = forward(layer, x, z, ws=ws)
    again = Run(layer, {role: run.arrays[role] for role in ("x0", "x1", "mean", "inv_std", "w3", "w4")})
    again.step(layer.recompute())
    for role in ("y0", "mask"):
        np.testing.assert_array_equal(again.arrays[role], run.arrays[role])


@RELUS
@pytest.mark.parametrize("wants", [["dx1"], ["dw0"], ["dx0", "dx1"]])
def test_a_sum_gives_only_the_gradients_that_are_wanted(wants, relu):
    layer, xs, ws = summed("convolution", relu)
    run = backward(forward(layer, *xs, ws=ws), wants, np.ones(layer.tops[0].shape))
    assert {role for role in run.arrays if role[0] == "d" and role != "dy0"} == set(wants)


def test_the_gradient_of_what_is_added_is_written_last_and_may_lie_on_that_of_the_sum():
    layer, *_ = summed("batch norm", True)
    last = layer.backward(["dx0", "dx1", "dw3", "dw4"])[-1]
    assert (last.reads, last.writes) == (("dy0",), ("dx1",))
    assert [(overlay.out, overlay.over) for overlay in last.overlays] == [("dx1", "dy0")]


def test_its_name_and_its_bottoms_are_those_of_the_layers_it_joins():
    inner, _, _ = term_of("convolution")
    shape = inner.tops[0].shape
    total = layer_of('type: "Eltwise" name: "sum" bottom: "z" bottom: "y"', shape, shape)
    layer = Epilogue(inner, total, 0, layer_of('type: "ReLU" name: "r"', shape))
    assert layer.name == f"{inner.name}+sum+r"
    assert layer.bottom_names == (inner.bottom_names[0], "z")
