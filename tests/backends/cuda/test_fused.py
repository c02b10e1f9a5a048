"""Fused ops: the bits of their layers one after the other, and the numbers of double precision."""

from __future__ import annotations

import numpy as np
import pytest

from layermem.backends.cuda import cuda_kernels
from layermem.backends.cuda.base import CudaCall
from layermem.backends.cuda.products import gemm_tiles
from layermem.backends.cuda.products.gemm_tiles import ENGINES
from layermem.layers import Layer
from tests.backends.cuda.harness import Case, Way, layer_of
from tests.backends.cuda.masked_dgrad import masked_dgrad
from tests.cases.activation import ELEMENTWISE, FEW
from tests.cases.convolution import PRECISION_BOUNDS, RELU_EDGES, edge_case
from tests.cases.fused import FUSED
from tests.cases.normalization import NORM_SHAPES
from tests.emulator.emulate import WAYS
from tests.layers.harness import batch_norm_scale, with_epilogue, with_saved

ENDS = [(True, False), (False, True), (True, True)]  # whether there is a ReLU, whether there is a sum
SHAPES = [*RELU_EDGES, "one by one, strided", "two groups", "one pixel"]
PRECISIONS = ["fp32", *PRECISION_BOUNDS]


def with_relu(inner: Layer, saved: str = "") -> Layer:
    return with_saved(with_epilogue(inner, residual=False, relu=True), saved.split())


def with_sum(inner: Layer, relu: bool, saved: str = "") -> Layer:
    return with_saved(with_epilogue(inner, residual=True, relu=relu), saved.split())


def convolution(name: str) -> tuple[Layer, tuple[int, ...]]:
    edge = edge_case(name, bias=True)
    (shape,) = edge.shapes("small")
    return layer_of(edge.text, shape), shape


def drawn(rng: np.random.Generator, layer: Layer) -> tuple[list, list]:
    return tuple([rng.standard_normal(t.shape) for t in ts] for ts in (layer.bottoms, [p.tensor for p in layer.params]))


@pytest.mark.parametrize("saved", ["", "y0"])
@pytest.mark.parametrize("name", SHAPES)
def test_a_convolution_with_relu_agrees_with_sums_in_double_precision(name, saved, rng):
    layer, _ = convolution(name)
    Case(with_relu(layer, saved), *drawn(rng, layer), bounds={"dw0": 1e-5, "dw1": 1e-5}, rng=rng).check()


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_a_convolution_with_a_residual_agrees_with_sums_in_double_precision(name, relu, rng):
    layer = with_sum(convolution(name)[0], relu)
    Case(layer, *drawn(rng, layer), bounds={"dw0": 1e-5, "dw1": 1e-5}, rng=rng).check()


@pytest.mark.parametrize("saved", ["", "y0"])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", NORM_SHAPES, ids=str)
def test_a_batch_norm_with_a_residual_agrees_with_double_precision(shape, relu, saved, rng):
    layer = with_sum(batch_norm_scale(shape), relu, saved)
    xs, ws = drawn(rng, layer)
    ws[1] = np.abs(ws[1]) + 1  # a moving sum of variances
    bounds = {"y0": 4e-6, "dx0": 1e-5, "inv_std": 4e-6, "w1": 4e-6, "dw3": 1e-5, "dw4": 1e-5}
    Case(layer, xs, ws, bounds=bounds, rng=rng).check()


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("transpose", ["false", "true"])
@pytest.mark.parametrize("relu, added", ENDS)
def test_an_inner_product_may_have_any_form(relu, added, transpose, axis, rng):
    text = f'type: "InnerProduct" inner_product_param {{ num_output: 24 axis: {axis} transpose: {transpose} }}'
    inner = layer_of(text, (5, 3, 5, 4))
    layer = with_sum(inner, relu) if added else with_relu(inner)
    Case(layer, *drawn(rng, layer), bounds={"dw0": 1e-5, "dw1": 1e-5}, rng=rng).check()


@pytest.mark.parametrize("saved", ["", "y0"])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("shape", [*ELEMENTWISE, FEW], ids=str)
def test_a_sum_with_relu_takes_coefficients_and_any_number_of_elements(shape, count, saved, rng):
    layer = layer_of('type: "Eltwise" eltwise_param { coeff: 1 coeff: -0.5 coeff: 2 }', *[shape] * 3)
    if count == 2:
        layer = layer_of('type: "Eltwise"', *[shape] * 2)
    Case(with_relu(layer, saved), *drawn(rng, layer), rng=rng).check()


def test_a_sum_with_relu_gives_only_the_gradients_that_are_wanted(rng):
    layer = layer_of('type: "Eltwise" eltwise_param { coeff: 1 coeff: -0.5 coeff: 2 }', *[(9, 5)] * 3)
    Case(with_relu(layer), *drawn(rng, layer), rng=rng).check(wants=["dx2"])


def sequence(inner: Layer, xs: list, ws: list, dy: np.ndarray, way: Way) -> dict[str, np.ndarray]:
    """What the layer, its sum with xs[1] if there is one, and its ReLU leave, each as an op of its own."""
    below, shape = Case(inner, xs[:1], ws, way=way), inner.tops[0].shape
    y = below.run_unchecked()["y0"]
    if len(xs) > 1:
        y = Case(layer_of('type: "Eltwise"', shape, shape), [y, xs[1]], way=way).run_unchecked()["y0"]
    above = Case(layer_of('type: "ReLU"', shape), [y], way=way).run_unchecked(dy)
    found = {**below.run_unchecked(above["dx0"]), "y0": above["y0"], "mask": above["mask"]}
    return {**found, "dx1": above["dx0"]} if len(xs) > 1 else found


@pytest.mark.exhaustive(8)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("added", [False, True])
def test_what_the_epilogue_does_changes_no_bit(name, added, precision, rng):
    inner, _ = convolution(name)
    layer = with_sum(inner, True) if added else with_relu(inner)
    xs, ws = drawn(rng, layer)
    dy, way = rng.standard_normal(inner.tops[0].shape), Way(precision=precision)
    want, got = sequence(inner, xs, ws, dy, way), Case(layer, xs, ws, way=way).run_unchecked(dy)
    for role in ("y0", "mask", "dx0", "dw0", "dw1", *(["dx1"] if added else [])):
        np.testing.assert_array_equal(got[role], want[role], err_msg=role)


@pytest.mark.exhaustive(6)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("name", FUSED["dgrad + mask"])
def test_the_backward_of_a_relu_in_the_epilogue_of_a_dgrad_changes_no_bit(name, accumulate, precision, rng):
    together, apart = masked_dgrad(name, accumulate, Way(precision=precision), rng)
    assert np.isfinite(together).all() and (together == 0).mean() > 0.3
    np.testing.assert_array_equal(together.view(np.uint32), apart.view(np.uint32))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("tile", ENGINES["fp32"].tiles, ids=lambda tile: tile.name)
def test_every_tile_masks_what_its_dgrad_writes(tile, precision, rng, monkeypatch):
    monkeypatch.setattr(gemm_tiles, "TILES", (tile,))
    together, apart = masked_dgrad("whole bytes of two tiles", True, Way(precision=precision), rng)
    np.testing.assert_array_equal(together.view(np.uint32), apart.view(np.uint32))


@pytest.mark.parametrize("way", [Way(*way) for way in WAYS if way[0] != "plain"], ids=lambda way: way.mode)
@pytest.mark.parametrize("name", FUSED["dgrad + mask"])
def test_a_masked_dgrad_stays_in_bounds_and_has_no_races(name, way, rng):
    together, apart = masked_dgrad(name, True, way, rng)
    np.testing.assert_array_equal(together.view(np.uint32), apart.view(np.uint32))


@pytest.mark.parametrize("shape", NORM_SHAPES, ids=str)
def test_a_residual_in_the_epilogue_of_a_batch_norm_changes_no_bit(shape, rng):
    inner = batch_norm_scale(shape)
    xs, ws = drawn(rng, with_sum(inner, True))
    dy = rng.standard_normal(shape)
    want, got = sequence(inner, xs, ws, dy, Way()), Case(with_sum(inner, True), xs, ws).run_unchecked(dy)
    for role in ("y0", "mask", "dx0", "dx1", "dw3", "dw4"):
        np.testing.assert_array_equal(got[role], want[role], err_msg=role)


@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("tile", ENGINES["fp32"].tiles, ids=lambda tile: tile.name)
def test_every_tile_writes_the_mask_of_its_relu(tile, precision, rng, monkeypatch):
    monkeypatch.setattr(gemm_tiles, "TILES", (tile,))
    inner = layer_of('type: "Convolution" convolution_param { num_output: 72 kernel_size: 3 }', (3, 4, 9, 8))
    xs, ws = drawn(rng, inner)
    dy, way = rng.standard_normal(inner.tops[0].shape), Way(precision=precision)
    want, got = sequence(inner, xs, ws, dy, way), Case(with_relu(inner), xs, ws, way=way).run_unchecked(dy)
    for role in ("y0", "mask"):
        np.testing.assert_array_equal(got[role], want[role], err_msg=role)


def launches(layer: Layer, step: str, *roles: str) -> list[str]:
    call = CudaCall({role: 256 * (i + 1) for i, role in enumerate(roles)})
    return [launch.function for launch in cuda_kernels.bind(layer.record, step, call)]


@pytest.mark.parametrize("outputs, roles, count", [(16, ["mask"], 1), (12, ["mask"], 2), (12, [], 1)])
def test_the_relu_is_a_launch_of_its_own_only_where_bytes_of_its_mask_hold_parts_of_two_pixels(outputs, roles, count):
    inner = layer_of(f'type: "Convolution" convolution_param {{ num_output: {outputs} kernel_size: 1 }}', (1, 4, 5, 3))
    assert len(launches(with_relu(inner), "forward", "x0", "w0", "w1", "y0", *roles)) == count


def test_a_nan_passes_through_a_product_with_relu():
    layer = layer_of('type: "InnerProduct" inner_product_param { num_output: 8 bias_term: false }', (2, 40))
    x = np.ones((2, 40), np.float32)
    x[1, 37] = np.nan
    got = Case(with_relu(layer), [x], [np.ones((8, 40))]).run_unchecked()
    assert np.isfinite(got["y0"][0]).all() and np.isnan(got["y0"][1]).all()
    assert got["mask"].tolist() == [255, 0]
