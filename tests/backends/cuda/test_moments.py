"""Moments of a channel: those that conv_fprop leaves are those of batch_moments, whole or in slices, bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from layermem.backends.cuda.products import gemm_tiles
from layermem.backends.cuda.products.gemm_tiles import ENGINES, PACKED_BF16, WIDENING
from layermem.backends.cuda.products.implicit_gemm import conv_fprop, writes_moments
from layermem.backends.cuda.support.moments import Units, batch_moments
from layermem.ops import NARROW, BatchNorm, BatchSlice, Tensor
from tests.backends.cuda.conv_moments import forward, moments
from tests.backends.cuda.harness import Memory, Way, run_op
from tests.backends.cuda.strict import BOUNDS_AT_LEAST
from tests.cases.fused import FUSED, OF_OCTETS, problem_of
from tests.cases.net_layers import net_layer
from tests.cases.normalization import MOMENT_ROWS
from tests.cases.slices import MOMENT_BLOBS, MOMENT_SLICES
from tests.emulator import emulate

PRECISIONS = list(ENGINES)
PROBLEMS = FUSED["fprop + moments"]


def of_blob(y: np.ndarray) -> np.ndarray:
    """What batch_moments makes of y [rows][C]."""
    memory = Memory()
    at, x = Units(*y.shape), memory.stored(y, np.float32)
    found = memory.bytes(at.nbytes).view(np.float32)
    for launch in batch_moments(at, x.ctypes.data, found.ctypes.data):
        kernels = emulate.load(f"cuda/{launch.module}.cu")
        kernels.launch(launch.function, launch.grid, launch.block, launch.args, launch.shared, buffers=[x, found])
    memory.check()
    return found.reshape(at.parts, 2, at.columns)


@pytest.mark.parametrize("shape", MOMENT_ROWS, ids=str)
def test_units_are_added_up_in_the_stated_order(shape, rng):
    x = (rng.standard_normal(shape) + 3).astype(np.float32)
    np.testing.assert_array_equal(of_blob(x), moments(x))


@pytest.mark.exhaustive(8)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("tile", ENGINES["fp32"].tiles, ids=lambda tile: tile.name)
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_convolution_leaves_the_moments_of_what_it_writes(name, tile, precision, rng, monkeypatch):
    monkeypatch.setattr(gemm_tiles, "TILES", (tile,))
    y, found, launches = forward(PROBLEMS[name], Way(precision=precision), rng)
    np.testing.assert_array_equal(found, moments(y))
    assert launches == (1 if tile.m == 128 else 2)


@pytest.mark.exhaustive(8)
@pytest.mark.parametrize("word", NARROW)
@pytest.mark.parametrize("precision", WIDENING)
@pytest.mark.parametrize("tile", ENGINES["fp32"].tiles, ids=lambda tile: tile.name)
@pytest.mark.parametrize("name", ["rows of many tiles", "one float at a time"])
def test_moments_are_of_what_is_stored_in_16_bits(name, tile, precision, word, rng, monkeypatch):
    monkeypatch.setattr(gemm_tiles, "TILES", (tile,))
    for wide_image in (False, True):
        y, found, launches = forward(PROBLEMS[name], Way(precision=precision), rng, word, wide_image)
        np.testing.assert_array_equal(found, moments(y))
        assert launches == (1 if tile.m == 128 else 2)


@pytest.mark.parametrize("tile", PACKED_BF16.tiles, ids=lambda tile: tile.name)
@pytest.mark.parametrize("name", OF_OCTETS)
def test_packed_tiles_leave_the_moments_of_what_is_stored(name, tile, rng, monkeypatch):
    monkeypatch.setattr(gemm_tiles, "TILES", (tile,))
    y, found, launches = forward(PROBLEMS[name], Way(precision="bf16"), rng, "bf16")
    np.testing.assert_array_equal(found, moments(y))
    assert launches == (2 if tile.m % 128 == 0 else 3)  # the first one rounds the weights


def test_products_of_data_leave_the_moments_of_what_is_stored(rng):
    y, found, launches = forward(PROBLEMS["one float at a time"], Way(precision="bf16"), rng, "bf16", wide_image=True)
    np.testing.assert_array_equal(found, moments(y))
    assert launches == 1


@pytest.mark.whole
@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("way", BOUNDS_AT_LEAST, ids=lambda way: way.mode)
@pytest.mark.parametrize("tile", PACKED_BF16.tiles, ids=lambda tile: tile.name)
def test_the_moments_of_packed_tiles_stay_in_bounds_and_have_no_races(tile, way, rng, monkeypatch):
    monkeypatch.setattr(gemm_tiles, "TILES", (tile,))
    y, found, _ = forward(PROBLEMS["octets"], replace(way, precision="bf16"), rng, "bf16")
    np.testing.assert_array_equal(found, moments(y))


@pytest.mark.exhaustive(8)
@pytest.mark.parametrize("way", BOUNDS_AT_LEAST, ids=lambda way: way.mode)
@pytest.mark.parametrize("tile", ENGINES["fp32"].tiles, ids=lambda tile: tile.name)
@pytest.mark.parametrize("name", ["rows of many tiles", "groups", "one float at a time"])
def test_the_moments_of_a_convolution_stay_in_bounds_and_have_no_races(name, tile, way, rng, monkeypatch):
    monkeypatch.setattr(gemm_tiles, "TILES", (tile,))
    y, found, _ = forward(PROBLEMS[name], way, rng)
    np.testing.assert_array_equal(found, moments(y))


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("large", [each for each in ENGINES["tf32"].tiles if each.m > 128], ids=lambda tile: tile.name)
@pytest.mark.parametrize("name", ["rows of many tiles", "groups"])
def test_a_tile_of_several_units_leaves_the_moments_of_each(name, large, precision, rng, monkeypatch):
    monkeypatch.setattr(gemm_tiles, "TILES", (large,))
    y, found, launches = forward(PROBLEMS[name], Way(precision=precision), rng)
    np.testing.assert_array_equal(found, moments(y))
    assert launches == 1


def test_tiles_of_other_rows_are_no_alternatives_where_moments_are_left():
    problem = net_layer("ResNet-50 res2a_branch2c", 32)
    assert writes_moments()
    plain, leaving = (conv_fprop(ENGINES["tf32"], problem, 256, 512, 768, moments=at) for at in (0, 1024))
    names = [[each.function for each in launch.alternatives] for launch in (plain, leaving)]
    assert "conv_fprop_64x64_v4" in names[0]
    assert names[1] and "conv_fprop_64x64_v4" not in names[1]


def test_a_tile_has_the_rows_of_a_unit_where_moments_are_left():
    small = problem_of(32, 64, 128, 56, 1)
    plain, leaving = (conv_fprop(ENGINES["fp32"], small, 256, 512, 768, moments=at) for at in (0, 1024))
    assert plain.function == "conv_fprop_64x64_v4" and leaving.function == "conv_fprop_128x128_v4"


def test_a_batch_norm_takes_moments_in_place_of_its_input(rng):
    shape, channels = (3, 20, 9, 11), 20
    record, memory = BatchNorm(Tensor(shape), 1e-5, 0.9), Memory()
    x = memory.stored(rng.standard_normal(shape), np.float32)
    found = []
    for given in ({}, {"moments": memory.stored(moments(x.reshape(-1, channels)), np.float32)}):
        made = {"y0": memory.stored(np.zeros(shape), np.float32)}
        made |= {role: memory.stored(np.zeros(channels), np.float32) for role in ("mean", "inv_std", "w0", "w1")}
        made["w2"] = memory.stored(np.zeros(1), np.float32)
        run_op(record, "forward", {"x0": x, **given, **made})
        found.append(made)
    for role, array in found[0].items():
        np.testing.assert_array_equal(found[1][role], array, err_msg=role)


@pytest.mark.parametrize("shape", MOMENT_BLOBS, ids=str)
@pytest.mark.parametrize("counts", MOMENT_SLICES, ids=str)
def test_slices_add_up_the_units_of_the_whole_batch(shape, counts):
    outer, columns, inner = Tensor(shape).around(1)
    rng = np.random.default_rng(5)
    x = (rng.standard_normal((outer, columns, inner)) + 3).astype(np.float32)
    whole = Units(outer, columns, inner)
    sizes = [Units(outer * n // 12, columns, inner).within(BatchSlice(0, n, 12)).carry_bytes() for n in counts]
    memory = Memory()
    carried, first = memory.bytes(max(sizes)), 0
    for count in counts:
        at = Units(outer * count // 12, columns, inner).within(BatchSlice(first, count, 12))
        here = memory.stored(x[outer * first // 12 : outer * (first + count) // 12], np.float32)
        for launch in batch_moments(at, here.ctypes.data, carried.ctypes.data):
            kernels = emulate.load(f"cuda/{launch.module}.cu")
            buffers = [here, carried]
            kernels.launch(launch.function, launch.grid, launch.block, launch.args, launch.shared, buffers=buffers)
        first += count
    memory.check()
    found = carried[: whole.nbytes].view(np.float32).reshape(whole.parts, 2, columns)
    np.testing.assert_array_equal(found, moments(x.transpose(0, 2, 1).reshape(-1, columns)))
