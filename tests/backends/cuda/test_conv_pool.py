"""A convolution with the MAX pooling behind it in one kernel: the bits of the two ops, one after the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from layermem.backends.cuda import implicit_gemm
from layermem.backends.cuda.implicit_gemm import ALL_TILES, ENGINES, FPROP_POOL, PACKED_BF16, engine_for, takes_narrow
from tests.backends.cuda.conv_pool import PROBLEMS, Operands, records
from tests.backends.cuda.harness import Way
from tests.emulator.emulate import WAYS

STRICT = [Way(*way) for way in WAYS if way[0] != "plain"]
STORED = [(precision, "") for precision in ENGINES]
STORED += [(precision, word) for precision in implicit_gemm.WIDENING for word in ("bf16", "fp16")]
STORED += [("bf16", "bf16")]  # precision of products, and storage of blobs: those with such kernels
CASES = [
    (name, precision, word)
    for name, problem in PROBLEMS.items()
    for precision, word in STORED
    if not word or takes_narrow(precision, problem, "forward", word, wide_image=False)
]
POOL_TILES = [tile for tile in ALL_TILES if FPROP_POOL in tile.products]


def check(
    name: str, way: Way, word: str, rng: np.random.Generator, *, relu: bool = True, bottom_relu: bool = True
) -> None:
    both = records(PROBLEMS[name], relu=relu, bottom_relu=bottom_relu)
    operands = Operands(PROBLEMS[name], rng, word)
    together, launches = operands.results(both, way, pooled=True)
    apart, all_launches = operands.results(both, way, pooled=False)
    assert launches == all_launches - 1
    for role, value in apart.items():
        np.testing.assert_array_equal(together[role].view(np.uint8), value.view(np.uint8), err_msg=role)
    expected = {0, 1, 2, 3, *([4] if bottom_relu else [])}
    assert expected.issuperset(together["argmax"].flat)
    assert name == "one window" or len(set(together["argmax"].flat)) > 2


@pytest.mark.exhaustive(3)
@pytest.mark.parametrize("name, precision, word", CASES)
def test_they_have_the_bits_of_two_ops(name, precision, word, rng, monkeypatch):
    way = Way(precision=precision)
    for tile in engine_for(precision, word).own_tiles(FPROP_POOL, 4):
        monkeypatch.setattr(implicit_gemm, "TILES", (tile,))
        check(name, way, word, rng)


@pytest.mark.parametrize("precision, word", STORED)
@pytest.mark.parametrize("relu, bottom_relu", [(False, False), (True, False)])
def test_so_they_have_without_the_relu_or_its_backward(relu, bottom_relu, precision, word, rng):
    check("odd", Way(precision=precision), word, rng, relu=relu, bottom_relu=bottom_relu)


def test_what_is_no_number_is_never_the_largest(rng):
    both = records(PROBLEMS["one window"], relu=False, bottom_relu=False)
    operands = Operands(PROBLEMS["one window"], rng)
    operands.roles["x0"][...] = np.nan
    made, _ = operands.results(both, pooled=True)
    assert (made["y0"] == -np.inf).all() and (made["argmax"] == 0).all()


def test_of_equal_elements_the_first_one_is_named(rng):
    both = records(PROBLEMS["even"], relu=True, bottom_relu=False)
    operands = Operands(PROBLEMS["even"], rng)
    operands.roles["x0"][...], operands.roles["w1"][...] = 0, 1
    made, _ = operands.results(both, pooled=True)
    assert (made["y0"] == 1).all() and (made["argmax"] == 0).all()


def test_no_index_is_written_where_no_backward_reads_it(rng):
    both, operands = records(PROBLEMS["odd"], relu=True, bottom_relu=True), Operands(PROBLEMS["odd"], rng)
    (alone, _), (beside, _) = (operands.results(both, pooled=True, has_argmax=each) for each in (False, True))
    np.testing.assert_array_equal(alone["y0"], beside["y0"])


@pytest.mark.samples(3)  # of modules whose tiles other tests run in both modes
@pytest.mark.parametrize("way", STRICT, ids=lambda way: way.mode)
@pytest.mark.parametrize("precision, word", STORED)
def test_they_stay_in_bounds_and_have_no_races(precision, word, way, rng):
    check("odd", replace(way, precision=precision), word, rng)


@pytest.mark.exhaustive(2)
@pytest.mark.parametrize("tile", POOL_TILES, ids=lambda tile: tile.name)
@pytest.mark.parametrize("way", STRICT, ids=lambda way: way.mode)
def test_no_tile_has_races(tile, way, rng, monkeypatch):
    monkeypatch.setattr(implicit_gemm, "TILES", (tile,))
    check("rows of several tiles", replace(way, precision="tf32"), "", rng)


def test_there_is_a_tile_for_every_gpu_that_has_the_precision():
    for engine in (*ENGINES.values(), PACKED_BF16):
        least = min(engine.shared_bytes(tile) for tile in engine.own_tiles(FPROP_POOL, 4))
        assert least <= (64 << 10 if engine.precision == "fp32" else 99 << 10)
