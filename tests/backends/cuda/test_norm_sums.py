"""Sums for backward of a BatchNorm: those that conv_dgrad leaves are those of gradient_sums, whole or in slices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from layermem.backends.cuda.products import gemm_tiles
from layermem.backends.cuda.products.gemm_tiles import ENGINES, PACKED_BF16, WIDENING
from layermem.backends.cuda.products.implicit_gemm import conv_dgrad
from layermem.backends.cuda.support.moments import SUMS, NormOperands, Units, gradient_sums
from layermem.ops import NARROW, BatchNorm, BatchNormScale, BatchSlice, Scale, Tensor
from tests.backends.cuda import norm_sums as stated
from tests.backends.cuda.harness import Memory, Way, run_op
from tests.backends.cuda.norm_sums import dgrad, norm_operands
from tests.backends.cuda.strict import BOUNDS_AT_LEAST
from tests.cases.fused import FUSED, OF_OCTETS
from tests.cases.net_layers import net_layer
from tests.cases.normalization import MOMENT_ROWS
from tests.cases.slices import MOMENT_BLOBS, MOMENT_SLICES
from tests.emulator import emulate

IN_EPILOGUE = ["channels of two tiles", "a map of taps", "groups of quads", "a group of rows alone"]
TILES = [tile for tile in ENGINES["fp32"].tiles if tile.m == 128]


def run_sums(at: Units, dy: np.ndarray, norm: dict[str, np.ndarray], memory: np.ndarray) -> None:
    """Runs gradient_sums on emulated kernels."""
    address = {role: each.ctypes.data for role, each in norm.items()}
    factor, bias = address.get("norm_factor", 0), address.get("norm_bias", 0)
    operands = NormOperands(
        address["norm_x"], address["norm_mean"], address["norm_inv_std"], factor, bias, relu=bool(factor)
    )
    for launch in gradient_sums(at, dy.ctypes.data, operands, memory.ctypes.data):
        kernels = emulate.load(f"cuda/{launch.module}.cu")
        buffers = [dy, *norm.values(), memory]
        kernels.launch(launch.function, launch.grid, launch.block, launch.args, launch.shared, buffers=buffers)


@pytest.mark.parametrize("relu", [False, True], ids=["plain", "relu"])
@pytest.mark.parametrize("shape", MOMENT_ROWS, ids=str)
def test_units_are_added_up_in_the_stated_order(shape, relu, rng):
    memory, at = Memory(), Units(*shape)
    norm = {role: memory.stored(each, np.float32) for role, each in norm_operands(*shape, relu, rng).items()}
    dy = memory.stored(rng.standard_normal(shape), np.float32)
    found = memory.bytes(at.nbytes).view(np.float32)
    run_sums(at, dy, norm, found)
    memory.check()
    np.testing.assert_array_equal(found.reshape(at.parts, 2, shape[1]), stated.gradient_sums(dy, norm["norm_x"], norm))


@pytest.mark.exhaustive(8)
@pytest.mark.parametrize("precision", ENGINES)
@pytest.mark.parametrize("tile", TILES, ids=lambda tile: tile.name)
@pytest.mark.parametrize("name", FUSED["dgrad + sums"])
def test_a_dgrad_leaves_the_sums_of_what_it_writes(name, tile, precision, rng, monkeypatch):
    monkeypatch.setattr(gemm_tiles, "TILES", (tile,))
    wanted, sums, launches = dgrad(name, Way(precision=precision), rng)
    np.testing.assert_array_equal(sums, wanted)
    problem = FUSED["dgrad + sums"][name]
    quads = problem.c // problem.groups % 4 == problem.k // problem.groups % 4 == 0
    assert launches == (0 if quads and name != "in phases" else 1)


@pytest.mark.exhaustive(6)
@pytest.mark.parametrize("word", NARROW)
@pytest.mark.parametrize("precision", WIDENING)
@pytest.mark.parametrize("tile", TILES, ids=lambda tile: tile.name)
@pytest.mark.parametrize("name", ["channels of two tiles", "a group of rows alone", "depthwise", "in phases"])
def test_the_sums_are_of_what_is_stored_in_16_bits(name, tile, precision, word, rng, monkeypatch):
    monkeypatch.setattr(gemm_tiles, "TILES", (tile,))
    wanted, sums, launches = dgrad(name, Way(precision=precision), rng, accumulate=True, masked=True, word=word)
    np.testing.assert_array_equal(sums, wanted)
    assert launches == (1 if name in ("depthwise", "in phases") else 0)


@pytest.mark.exhaustive(6)
@pytest.mark.parametrize("accumulate, masked, relu", [(True, True, False), (True, False, True), (False, True, True)])
@pytest.mark.parametrize("tile", [tile for tile in PACKED_BF16.tiles if tile.m >= 128], ids=lambda tile: tile.name)
@pytest.mark.parametrize("name", OF_OCTETS)
def test_packed_tiles_leave_the_sums_of_what_is_stored(name, tile, accumulate, masked, relu, rng, monkeypatch):
    monkeypatch.setattr(gemm_tiles, "TILES", (tile,))
    how = {"relu": relu, "accumulate": accumulate, "masked": masked, "word": "bf16"}
    wanted, sums, launches = dgrad(name, Way(precision="bf16"), rng, **how)
    np.testing.assert_array_equal(sums, wanted)
    assert launches == 0


@pytest.mark.whole
@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("way", BOUNDS_AT_LEAST, ids=lambda way: way.mode)
@pytest.mark.parametrize("tile", [tile for tile in PACKED_BF16.tiles if tile.m >= 128], ids=lambda tile: tile.name)
def test_the_sums_of_packed_tiles_stay_in_bounds_and_have_no_races(tile, way, rng, monkeypatch):
    monkeypatch.setattr(gemm_tiles, "TILES", (tile,))
    wanted, sums, _ = dgrad("octets", replace(way, precision="bf16"), rng, accumulate=True, word="bf16")
    np.testing.assert_array_equal(sums, wanted)


@pytest.mark.parametrize("accumulate, masked, relu", [(True, True, False), (True, False, True), (False, True, True)])
@pytest.mark.parametrize("precision", ["fp32", "tf32"])
@pytest.mark.parametrize("name", ["channels of two tiles", "groups of quads"])
def test_the_sums_are_of_what_is_accumulated_and_masked(name, precision, accumulate, masked, relu, rng):
    wanted, sums, _ = dgrad(name, Way(precision=precision), rng, relu=relu, accumulate=accumulate, masked=masked)
    np.testing.assert_array_equal(sums, wanted)


@pytest.mark.whole
@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("way", BOUNDS_AT_LEAST, ids=lambda way: way.mode)
@pytest.mark.parametrize("name", IN_EPILOGUE)
def test_the_sums_of_a_dgrad_stay_in_bounds_and_have_no_races(name, way, rng, monkeypatch):
    for tile in TILES:
        monkeypatch.setattr(gemm_tiles, "TILES", (tile,))
        wanted, sums, _ = dgrad(name, way, rng, accumulate=True)
        np.testing.assert_array_equal(sums, wanted)


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("large", [each for each in ENGINES["tf32"].tiles if each.m > 128], ids=lambda tile: tile.name)
def test_a_tile_of_several_units_leaves_the_sums_of_each(large, precision, rng, monkeypatch):
    monkeypatch.setattr(gemm_tiles, "TILES", (large,))
    wanted, sums, launches = dgrad("channels of two tiles", Way(precision=precision), rng)
    np.testing.assert_array_equal(sums, wanted)
    assert launches == 0


def test_tiles_of_other_rows_are_no_alternatives_where_sums_are_left():
    problem, struct = net_layer("ResNet-50 res2b_branch2a", 32), NormOperands(256, 512, 768).struct
    launch = conv_dgrad(ENGINES["tf32"], problem, 256, 512, 768, norm={"parts": 1024, **struct})
    names = [launch.function, *(each.function for each in launch.alternatives)]
    assert all(name.startswith("conv_dgrad_sums_") and "64x64" not in name for name in names) and len(names) > 1


@pytest.mark.parametrize("scaled", [False, True], ids=["BatchNorm", "BatchNormScale"])
def test_a_batch_norm_takes_sums_in_place_of_its_operands(scaled, rng):
    shape, channels = (3, 20, 9, 11), 20
    record = norm = BatchNorm(Tensor(shape), 1e-5, 0.9)
    if scaled:
        record = BatchNormScale(norm, Scale(norm.x, "w0", (1, channels, 1, 1), (0, 2, 3), "w1"), relu=True)
    memory, found = Memory(), []
    like = {"x0": shape, "dy0": shape, "mean": (channels,), "inv_std": (channels,)}
    like |= {"w3": (channels,), "w4": (channels,)} if scaled else {}
    read = {role: memory.stored(rng.standard_normal(each) + 0.5, np.float32) for role, each in like.items()}
    operands = {"norm_mean": read["mean"], "norm_inv_std": read["inv_std"]}
    operands |= {"norm_factor": read["w3"], "norm_bias": read["w4"]} if scaled else {}
    dy, x = (read[role].reshape(-1, channels) for role in ("dy0", "x0"))
    sums = memory.stored(stated.gradient_sums(dy, x, operands), np.float32)
    for given in ({}, {"norm_sums": sums}):
        made = {"dx0": memory.stored(np.zeros(shape), np.float32)}
        made |= {role: memory.stored(np.zeros(channels), np.float32) for role in ("dw3", "dw4") if scaled}
        run_op(record, "backward", {**read, **given, **made})
        found.append(made)
    for role, array in found[0].items():
        np.testing.assert_array_equal(found[1][role], array, err_msg=role)


@pytest.mark.parametrize("shape", MOMENT_BLOBS, ids=str)
@pytest.mark.parametrize("counts", MOMENT_SLICES, ids=str)
def test_slices_add_up_the_units_of_the_whole_batch(shape, counts, rng):
    outer, columns, inner = Tensor(shape).around(1)
    whole = Units(outer, columns, inner)
    norm = norm_operands(outer * inner, columns, True, rng)
    x, dy = ((rng.standard_normal((outer, columns, inner)) + 1).astype(np.float32) for _ in range(2))
    parts = [Units(outer * n // 12, columns, inner).within(BatchSlice(0, n, 12)) for n in counts]
    memory = Memory()
    carried, first = memory.bytes(max(at.carry_bytes(SUMS, blobs=2) for at in parts)), 0
    for count in counts:
        at = Units(outer * count // 12, columns, inner).within(BatchSlice(first, count, 12))
        items = slice(outer * first // 12, outer * (first + count) // 12)
        here = {**norm, "norm_x": memory.stored(x[items], np.float32)}
        run_sums(at, memory.stored(dy[items], np.float32), here, carried)
        first += count
    memory.check()
    found = carried[: whole.nbytes].view(np.float32).reshape(whole.parts, 2, columns)
    rows = [each.transpose(0, 2, 1).reshape(-1, columns) for each in (dy, x)]
    np.testing.assert_array_equal(found, stated.gradient_sums(*rows, norm))
