"""Ops of bands of an InnerProduct's weights leave the bits of the whole, on emulated kernels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from layermem.backends.cuda import cuda_kernels
from layermem.backends.cuda.inner_product import conv_problem
from layermem.backends.cuda.products.gemm_tiles import DEPTH, ENGINES
from layermem.backends.cuda.products.wgrad import split_of
from layermem.ops import BatchSlice, InnerProduct, InnerProductUpdate, RowBand, Tensor, Update
from tests.backends.cuda.harness import PLAIN, Memory, Way, layer_of, run_op
from tests.backends.cuda.strict import BOUNDS_AT_LEAST
from tests.backends.cuda.test_update import SETTINGS
from tests.cases.inner_product import BAND_IN_PARTS, BANDS


def product(rows: int, inner: int, outputs: int) -> InnerProduct:
    record = layer_of(f'type: "InnerProduct" inner_product_param {{ num_output: {outputs} }}', (rows, inner)).record
    assert isinstance(record, InnerProduct)
    return record


def bands_of(whole: InnerProduct) -> list[tuple[slice, InnerProduct]]:
    """Two bands, and the rows of the weights that each has."""
    bands = []
    for rows in (slice(0, DEPTH), slice(DEPTH, whole.outputs)):
        outputs = rows.stop - rows.start
        y, band = replace(whole.y, shape=(whole.rows, outputs)), RowBand(rows.start, whole.outputs)
        bands.append((rows, replace(whole, outputs=outputs, y=y, band=band)))
    return bands


def check_bits(whole: InnerProduct, rng: np.random.Generator, way: Way = PLAIN) -> None:
    memory = Memory()
    shapes = {"x0": (whole.rows, whole.inner), "w0": (whole.outputs, whole.inner), "dy0": (whole.rows, whole.outputs)}
    given = {role: memory.stored(rng.standard_normal(shape), np.float32) for role, shape in shapes.items()}
    given["w1"] = memory.stored(rng.standard_normal(whole.outputs), np.float32)

    def empty(*shape: int) -> np.ndarray:
        return memory.stored(np.full(shape, np.nan), np.float32)

    x, dy, w, w1 = (given[role] for role in ("x0", "dy0", "w0", "w1"))
    y, dx, dw = empty(*dy.shape), empty(*x.shape), empty(*w.shape)
    run_op(whole, "forward", {"x0": x, "w0": w, "w1": w1, "y0": y}, way=way)
    run_op(whole, "dgrad", {"dy0": dy, "w0": w, "dx0": dx}, way=way)
    run_op(whole, "wgrad", {"x0": x, "dy0": dy, "dw0": dw}, way=way)
    sums = empty(*x.shape)
    for rows, band in bands_of(whole):
        part = memory.stored(w[rows], np.float32)
        columns, gradient = empty(whole.rows, band.outputs), empty(*part.shape)
        run_op(band, "forward", {"x0": x, "w0": part, "w1": w1, "y0": columns}, way=way)
        assert columns.tobytes() == y[:, rows].tobytes()
        run_op(band, "wgrad", {"x0": x, "dy0": dy, "dw0": gradient}, way=way)
        assert gradient.tobytes() == dw[rows].tobytes()
        continues = () if band.band is None or band.band.is_first else ("dx0",)
        run_op(band, "dgrad", {"dy0": dy, "w0": part, "dx0": sums}, accumulates=continues, way=way)
    assert sums.tobytes() == dx.tobytes() and np.isfinite(dx).all()
    memory.check()


@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("precision", ENGINES)
@pytest.mark.parametrize("shape", [*BANDS, BAND_IN_PARTS])
def test_bands_have_the_bits_of_the_whole(shape, precision, rng):
    check_bits(product(*shape), rng, replace(PLAIN, precision=precision))


@pytest.mark.parametrize("way", BOUNDS_AT_LEAST, ids=lambda way: way.mode)
def test_bands_stay_in_bounds_and_have_no_races(way, rng):
    check_bits(product(3, 7, 70), rng, way)


def test_a_gradient_in_parts_stays_in_the_parts_of_the_whole(rng):
    whole = product(600, 8, 70)
    (_, band), _ = bands_of(whole)
    assert split_of(conv_problem(whole)).parts > 1
    assert cuda_kernels.workspace_bytes(band, "wgrad", ("x0", "dy0", "dw0"))


def test_a_band_is_learned_with_the_bits_of_the_whole(rng):
    whole = product(5, 12, 132)
    shapes = {"x0": (5, 12), "dy0": (5, 132), "w0": (132, 12), "h0": (132, 12)}
    values = {role: rng.random(shape) for role, shape in shapes.items()}
    memory = Memory()

    def learn(record: InnerProduct, rows: slice) -> dict[str, np.ndarray]:
        own = {role: value[rows] if role in ("w0", "h0") else value for role, value in values.items()}
        arrays = {role: memory.stored(value, np.float32) for role, value in own.items()}
        update = Update("SGD", "w", Tensor((record.outputs, 12)))
        run_op(InnerProductUpdate(record, update), "backward_update", arrays, context=SETTINGS)
        return arrays

    wanted = learn(whole, slice(None))
    for rows, band in bands_of(whole):
        found = learn(band, rows)
        for role in ("w0", "h0"):
            assert found[role].tobytes() == wanted[role][rows].tobytes(), role
    memory.check()


def test_slices_of_the_batch_do_not_sum_a_band_here():
    (_, band), _ = bands_of(product(4, 12, 132))
    assert cuda_kernels.carry_bytes(replace(band, batch_slice=BatchSlice(0, 2, 4)), "wgrad", "dw0") is None
