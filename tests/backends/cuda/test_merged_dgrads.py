"""Two dgrads of one blob in one kernel: the bits of two ops, the last of which adds to the first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from layermem.backends.cuda import implicit_gemm, warpgroup
from layermem.backends.cuda.implicit_gemm import (
    COMMON_TILES,
    ENGINES,
    MERGED_DGRADS,
    PACKED_BF16,
    DgradPart,
    conv_dgrad_merged,
)
from layermem.ops import Window
from tests.backends.cuda.harness import Way
from tests.backends.cuda.merged_dgrads import PAIRS, merged, problem_of
from tests.emulator.emulate import WAYS

MERGED_TILES = [tile for tile in COMMON_TILES if MERGED_DGRADS in tile.products]
STRICT = [Way(*way) for way in WAYS if way[0] != "plain"]
OF_OCTETS = [name for name in PAIRS if name != "one float at a time"]
ENDS = [(False, False), (False, True), (True, True)]  # whether it adds to what is there, whether it is masked


def assert_same(together: np.ndarray, apart: np.ndarray) -> None:
    assert together.tobytes() == apart.tobytes()
    assert together.any()


@pytest.mark.exhaustive(2)
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("tile", MERGED_TILES, ids=lambda tile: tile.name)
@pytest.mark.parametrize("name", PAIRS)
def test_they_have_the_bits_of_two_ops(name, tile, precision, rng, monkeypatch):
    monkeypatch.setattr(implicit_gemm, "TILES", (tile,))
    for accumulate, masked in ENDS:
        together, apart, launches = merged(name, Way(precision=precision), rng, accumulate=accumulate, masked=masked)
        assert_same(together, apart)
        assert launches == (2 if name == "one float at a time" else 1)


@pytest.mark.parametrize("tile", MERGED_TILES, ids=lambda tile: tile.name)
@pytest.mark.parametrize("name", OF_OCTETS)
def test_the_first_sum_is_rounded_where_blobs_are_in_16_bits(name, tile, rng, monkeypatch):
    monkeypatch.setattr(implicit_gemm, "TILES", (tile,))
    for accumulate, masked in ENDS:
        way = Way(precision="bf16")
        together, apart, launches = merged(name, way, rng, accumulate=accumulate, masked=masked, storage="bf16")
        assert_same(together, apart)
        assert launches == 3  # weights of both are rounded before


@pytest.mark.parametrize("precision", ["fp32", "fp32x3"])
def test_other_precisions_run_one_after_the_other(precision, rng):
    together, apart, launches = merged("with a stride", Way(precision=precision), rng, masked=True)
    assert_same(together, apart)
    assert launches == 2


@pytest.mark.parametrize("pays", [warpgroup.PAYS, warpgroup.ALWAYS], ids=["where they pay", "always"])
def test_so_do_products_by_warpgroups(pays, rng, monkeypatch):
    monkeypatch.setattr(warpgroup, "PAYS", pays)
    together, apart, launches = merged("with a stride", Way(precision="tf32", capability="90"), rng, masked=True)
    assert_same(together, apart)
    assert launches == (2 if pays is warpgroup.ALWAYS else 1)


@pytest.mark.exhaustive(2)
@pytest.mark.parametrize("way", STRICT, ids=lambda way: way.mode)
@pytest.mark.parametrize("storage", ["", "bf16"])
@pytest.mark.parametrize("name", ["with a stride", "in other phases", "of maps of taps"])
def test_they_stay_in_bounds_and_have_no_races(name, storage, way, rng):
    together, apart, _ = merged(name, replace(way, precision="bf16"), rng, masked=True, storage=storage)
    assert_same(together, apart)


@pytest.mark.parametrize("engine", [ENGINES["tf32"], PACKED_BF16], ids=lambda engine: engine.module)
def test_their_tiles_are_those_of_large_products(engine):
    window = Window(size=28, kernel=1, stride=2)
    both = [replace(problem_of(256, k, (28, 28)), n=32, rows=window, columns=window) for k in (128, 512)]
    launch = conv_dgrad_merged(engine, 256, *(DgradPart(each, 512, 768) for each in both))
    assert launch.grid[1:] == (1, 4) and launch.function.startswith("conv_dgrad_merged_128x")
    names = [launch.function, *(each.function for each in launch.alternatives)]
    assert set(names) <= {f"conv_dgrad_merged_{tile.name}_v{engine.vector or 4}" for tile in MERGED_TILES}
