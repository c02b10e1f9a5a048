"""Weights as warpgroups multiply them: tiles in the order of shared memory, which NumPy states too, and their bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from layermem.backends.cuda import cuda_kernels
from layermem.backends.cuda.base import CudaCall
from layermem.backends.cuda.products import narrow_products, warpgroup, weight_tiles
from layermem.backends.cuda.products.gemm_tiles import DGRAD, FPROP, PACKED_BF16
from layermem.backends.cuda.products.warpgroup import CAPABILITY, NO_THRESHOLDS, PACKED_TILES
from layermem.backends.cuda.products.weight_tiles import rounded_weights_bytes, tiles_bytes
from layermem.ops import Conv, Deconv
from tests.backends.cuda.harness import PLAIN, Way
from tests.backends.cuda.weight_tiles import COLUMNS, DEPTH, run_tile_weights, tiled, weights_of
from tests.cases.fused import FUSED, problem_of
from tests.emulator.emulate import WAYS

PROBLEMS = FUSED["tiles of weights"]


@pytest.mark.parametrize("way", [Way(*way) for way in WAYS], ids=lambda way: f"{way.mode}-{way.order}-{way.copies}")
@pytest.mark.parametrize("product", [FPROP, DGRAD])
@pytest.mark.parametrize("name", PROBLEMS)
def test_tiles_have_the_order_of_shared_memory_and_zeros_beyond_the_operand(name, product, way, rng):
    problem = PROBLEMS[name]
    weights = weights_of(problem, rng)
    np.testing.assert_array_equal(run_tile_weights(weights, problem, product, way), tiled(weights, problem, product))


def test_a_weight_that_is_no_number_is_that_of_other_products(rng):
    problem = PROBLEMS["groups"]
    weights = weights_of(problem, rng)
    weights[3, 1, 5] = np.float32(np.uint32(0xFFFFFFFF).view(np.float32))
    tiles = run_tile_weights(weights, problem, FPROP, PLAIN)
    assert (tiles == 0x7FFF).sum() == 1


def test_constants_are_those_of_the_tiles_and_of_the_kernels():
    columns = {tile.n for tile in PACKED_TILES if {FPROP, DGRAD}.intersection(tile.products)}
    assert columns == {COLUMNS} == {weight_tiles.COLUMNS} and PACKED_BF16.depth == DEPTH


# ---- bytes ---------------------------------------------------------------------------------------------------------


def test_whole_tiles_take_no_more_than_rounded_weights():
    for channels, outputs in ((256, 256), (512, 512), (1024, 256)):
        problem = problem_of(2, channels, outputs, 14)
        for product in (FPROP, DGRAD):
            assert tiles_bytes(problem, product) == 2 * problem.filter.count
            assert rounded_weights_bytes("bf16", problem, product, "bf16") == 2 * problem.filter.count


@pytest.mark.parametrize(
    "product, channels, outputs, tiles",
    [
        (FPROP, 160, 320, 2 * 23),  # 1,440 k's
        (DGRAD, 320, 192, 2 * 27),
        (FPROP, 128, 192, 0),  # by the engine of every GPU
        (DGRAD, 320, 200, 0),  # stages of two taps
    ],
)
def test_a_plan_holds_on_every_gpu(product, channels, outputs, tiles):
    problem = problem_of(2, channels, outputs, 14)
    rounded = 2 * problem.filter.count
    found = rounded_weights_bytes("bf16", problem, product, "bf16")
    assert found == max(rounded, tiles * 256 * 64 * 2) and (found > rounded) == (tiles > 0)


def test_an_op_has_the_workspace_of_the_product_that_it_launches():
    problem = problem_of(2, 320, 384, 14)
    fprop, dgrad = (rounded_weights_bytes("bf16", problem, product, "bf16") for product in (FPROP, DGRAD))
    assert fprop != dgrad
    conv, deconv = Conv(problem), Deconv(problem)
    expected = {
        (conv, "forward"): fprop,
        (conv, "dgrad"): dgrad,
        (conv, "wgrad"): 0,
        (deconv, "forward"): dgrad,
        (deconv, "dgrad"): fprop,
        (replace(deconv, bias=True), "forward"): 2 * problem.filter.count,
    }
    for (record, step), nbytes in expected.items():
        assert narrow_products.rounding_bytes("bf16", record, step, "bf16") == nbytes


@pytest.mark.parametrize("has_bias", [False, True])
def test_a_deconvolution_reads_the_weights_that_its_kernel_takes(has_bias, monkeypatch):
    monkeypatch.setattr(warpgroup, "THRESHOLDS", NO_THRESHOLDS)
    addresses = {role: 256 * (i + 1) for i, role in enumerate(("x0", "y0", "w0", *["w1"] * has_bias, "workspace"))}
    call = CudaCall(addresses, precision="bf16", capability=CAPABILITY, storage="bf16", narrow=("x0", "y0"))
    modules = [
        each.module for each in cuda_kernels.bind(Deconv(problem_of(2, 32, 64, 14), bias=has_bias), "forward", call)
    ]
    packed = PACKED_BF16.module
    assert modules == (["half", packed] if has_bias else ["weight_tiles", f"{packed}_sm90a"])
