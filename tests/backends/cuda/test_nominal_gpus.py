"""Tiles by architecture: which ones, and that nothing else of a launch or of a split depends on it.

That no tile changes a bit is tested with the products themselves (test_convolution.py)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layermem.backends.cuda.base import CudaCall
from layermem.backends.cuda.products import gemm_tiles, wgrad
from layermem.backends.cuda.products.gemm_tiles import (
    BF16_OF_DATA,
    ENGINES,
    FPROP,
    PACES_OF_MIXED_WIDTH,
    PACKED_BF16,
    VECTOR,
    by_time,
    engine_of,
)
from layermem.backends.cuda.products.implicit_gemm import conv_fprop
from layermem.backends.cuda.products.nominal_gpus import GPUS, H200, nominal_gpu
from layermem.backends.cuda.products.wgrad import wgrad_splits
from layermem.ops import ConvProblem, Window
from tests.emulator.test_driver_rules import OPT_IN

WIDE, LATE = ((128 * 28 * 28, 128, 1), 1152), ((8 * 7 * 7, 512, 1), 4608)  # matrices and depth in ResNet-50
CAPABILITY = {"A100": "80", "RTX 3090": "86", "RTX 4090": "89", "H100": "90", "RTX 5090": "120"}


def test_on_an_h200_all_is_as_it_was():
    for engine in (*ENGINES.values(), PACKED_BF16, BF16_OF_DATA, ENGINES["tf32"].on("fp16")):
        assert engine.on_gpu(H200) == engine
        tables = [engine.paces, *([PACES_OF_MIXED_WIDTH[engine.precision]] if engine in ENGINES.values() else [])]
        for tile in gemm_tiles.ALL_TILES:  # so that the rule for other GPUs holds there too
            for paces in (table[tile.name] for table in tables if tile.name in table):
                block = engine.shared_bytes(tile) + gemm_tiles.TABLE_BYTES * tile.m
                assert H200.paces(paces, block, tile.m * tile.n * engine.depth, engine.precision) == tuple(paces)


@pytest.mark.parametrize(
    "precision, shape, gpu, tile",
    [
        ("tf32", WIDE, "H100", "256x128"),
        ("tf32", WIDE, "A100", "256x128"),
        ("tf32", LATE, "H100", "64x64"),
        # 99 KiB: two blocks of 64 x 64 hide each other's loads, one of 128 x 128 has nothing beside it
        ("tf32", WIDE, "RTX 3090", "64x64"),
        ("tf32", WIDE, "RTX 4090", "64x64"),
        ("tf32", WIDE, "RTX 5090", "64x64"),
        # whose products take half as long: with small tiles the L2 cache would bind them
        ("bf16", WIDE, "RTX 3090", "128x128"),
        ("bf16", WIDE, "H100", "256x128"),
        ("bf16", WIDE, "A100", "256x128"),
        ("fp32", WIDE, "RTX 3090", "128x128"),
        ("fp32", WIDE, "H100", "128x128"),
        ("fp32", WIDE, "A100", "128x64"),
    ],
)
def test_a_tile_suits_the_architecture(precision, shape, gpu, tile):
    """The fastest whose blocks fit there, as the driver takes it."""
    engine = ENGINES[precision].on_gpu(nominal_gpu(CAPABILITY[gpu]))
    most = OPT_IN[int(CAPABILITY[gpu])] << 10
    fitting = (
        each
        for each in by_time(engine, FPROP, *shape, VECTOR)
        if engine.shared_bytes(each) + gemm_tiles.TABLE_BYTES * each.m <= most
    )
    assert next(fitting).name == tile


def test_an_architecture_that_is_not_known_is_as_the_one_before():
    assert nominal_gpu("87") == GPUS[86] and nominal_gpu("121") == GPUS[120] and nominal_gpu("70") == GPUS[75]
    assert nominal_gpu("") == nominal_gpu("90") == H200


def test_only_the_tile_of_a_launch_depends_on_the_gpu():
    problem = ConvProblem(16, 64, 128, Window(28, 3, 1, 1, 1), Window(28, 3, 1, 1, 1))
    launches, gradients = [], []
    for capability in map(str, sorted(GPUS)[1:]):
        engine = engine_of(CudaCall({}, precision="tf32", capability=capability), "x0")
        assert engine.gpu == nominal_gpu(capability) and engine.on_fp32.gpu == engine.gpu
        split = wgrad.split_of(problem)
        launches.append(conv_fprop(engine, problem, 256, 512, 768))
        gradients.append(wgrad_splits(engine, problem, split, 256, 512, 768, range(split.parts), images=16))
    for each in (launches, gradients):
        assert len({launch.function for launch in each}) > 1
        same = {replace(one, function="", grid=(1, 1, 1), block=1, shared=0, alternatives=()) for one in each}
        assert len(same) == 1
