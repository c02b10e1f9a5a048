"""Large products of whole numbers: coverage of each kernel, correct results, and detection of one wrong bit."""

from __future__ import annotations

import ctypes
from fnmatch import fnmatch
from itertools import groupby

import pytest

from layermem.backends.cuda.kernel_images.sources import modules
from layermem.backends.cuda.products.gemm_tiles import ENGINES, FPROP
from layermem.backends.cuda.products.implicit_gemm import conv_fprop
from layermem.ops import ConvProblem, Window
from tests.backends.cuda import on_fake_driver
from tests.backends.cuda.harness import PLAIN, Way, kernel_names
from tests.backends.cuda.on_emulator import Emulator
from tests.emulator import fake_driver
from tests.emulator.build import ROOT
from tests.emulator.emulate import WAYS
from tools.gpu import correctness, coverage
from tools.gpu.every_kernel import Check
from tools.gpu.kept import read_rows
from tools.gpu.large import large_checks
from tools.gpu.whole_numbers import Operands

needs_pycuda = pytest.mark.skipif(
    not fake_driver.pycuda_is_installed(),
    reason="PyCUDA is not installed: `layermem setup-cuda` builds it without CUDA",
)
CHECKS = {(check.name, check.precision): check for check in large_checks(brief=False, small=True)}


def families() -> list[tuple[str, str]]:
    """One of the checks that differ only in their tile, with another tile from family to family."""
    found = groupby(sorted(CHECKS), key=lambda key: (key[1], key[0].rpartition(", ")[0]))
    each = [list(keys) for _, keys in found]
    return [keys[number % len(keys)] for number, keys in enumerate(each)]


def check(each: Check, way: Way = PLAIN) -> None:
    with each.tiles():
        each.make(each.way(Emulator(way))).check()


# ---- coverage --------------------------------------------------------------------------------------------------------


def declared() -> set[str]:
    of_products = [module for module in modules() if module.startswith("convolution")]
    return {f"{module}.{name}" for module in of_products for name in kernel_names(module)}


@pytest.mark.parametrize("small, multiprocessors", [(False, 132), (False, 160), (True, coverage.SMALL_GPU)])
def test_every_kernel_of_products_has_full_tiles_tails_wrapped_rings_and_second_tiles(small, multiprocessors):
    """The sizes are those of a GPU and those of an emulated one."""
    wanted = [each for each in correctness.checks(brief=False, small=small) if each.name.startswith("large ")]
    found = coverage.best(coverage.met(wanted, multiprocessors))
    assert {name: each.lacks for name, each in found.items() if each.lacks} == {}
    assert found.keys() == declared(), "the head of tools/gpu/large.py says what a check is"


def test_a_check_by_warpgroups_launches_a_kernel_of_theirs():
    of_warpgroups = [each for each in correctness.checks(brief=False, small=True) if not each.runs_on("80")]
    assert any(each.name.startswith("InnerProduct") for each in of_warpgroups)
    for each in of_warpgroups:
        tiles = {(met.kernel.partition(".")[0][-5:], met.tile) for met in coverage.met([each])}
        assert ("sm90a", each.tile[:2]) in tiles, each.name


def test_missing_features_of_a_launch_are_named():
    cases = {
        "full": coverage.Met("convolution.conv_fprop_128x64_v4", (147, 65), (128, 64), 577, 32, 2, 4, 4),
        "exactly a tile": coverage.Met("convolution.conv_fprop_128x64_v4", (128, 64), (128, 64), 577, 32, 2, 1, 1),
        "no wrap": coverage.Met("convolution_tf32_sm90a.conv_fprop_128x64_v4", (147, 65), (128, 64), 60, 32, 4, 4, 2),
        "one tile": coverage.Met("convolution_tf32_sm90a.conv_fprop_128x64_v4", (147, 65), (128, 64), 577, 32, 4, 4, 4),
    }
    assert {name: each.lacks for name, each in cases.items()} == {
        "full": (),
        "exactly a tile": ("full tile", "tail"),
        "no wrap": ("ring",),
        "one tile": ("second tile",),
    }


# ---- correct results and a wrong bit ---------------------------------------------------------------------------------


@pytest.mark.samples(48)
@pytest.mark.parametrize("key", families(), ids=", ".join)
def test_a_large_product_has_the_bits_of_the_naive_kernels(key):
    check(CHECKS[key])


@pytest.mark.exhaustive(6)
@pytest.mark.parametrize("way", [Way(*way) for way in WAYS if way[0] == "plain"], ids=lambda way: way.order)
@pytest.mark.parametrize("name", ["large dgrad, octets, warpgroups 128x64", "large wgrad, octets, warpgroups 128x64"])
def test_a_large_product_is_right_in_any_order_of_threads(name, way):
    check(CHECKS[name, "tf32"], way)


class Scribbling(Emulator):
    """Flips a bit of element number `where` in results of kernels whose module.function matches a pattern."""

    def __init__(self, pattern: str, where: int):
        super().__init__(PLAIN)
        self.pattern, self.where, self.out = pattern, where, 0

    def launch(self, launch, context):
        super().launch(launch, context)
        if fnmatch(f"{launch.module}.{launch.function}", self.pattern):
            element = (ctypes.c_uint32).from_address(self.out + 4 * self.where)
            element.value ^= 1 << 22


PROBLEM = ConvProblem(2, 8, 36, Window(9, 3, 1, 1), Window(9, 3, 1, 1))
CELLS = PROBLEM.maps.count
OF_FP32, OF_TF32 = "convolution.conv_fprop_*", "convolution_tf32.conv_fprop_*"


def judged(pattern: str, where: int, most_macs: int) -> list[dict[str, str]]:
    """The faults of a product in fp32 and in tf32."""
    gpu = Scribbling(pattern, where)
    operands = Operands(gpu, PROBLEM, most_macs=most_macs)
    at = operands.places()
    gpu.out = at.out
    launches = (
        conv_fprop(engine, PROBLEM, at.out, at.image, at.weights(engine, FPROP))
        for engine in (ENGINES["fp32"], ENGINES["tf32"])
    )
    return [operands.judged(FPROP, [launch]) for launch in launches]


@pytest.mark.parametrize("where", [3, 40])  # in the part that the naive kernel computes, and beside it
@pytest.mark.parametrize("most_macs", [PROBLEM.macs, PROBLEM.macs // 3])
def test_the_naive_kernel_decides_which_of_two_kernels_is_wrong(where, most_macs):
    says = f"1 of {CELLS} elements have other bits than the naive kernel's, number {where} first"
    assert judged("none", where, most_macs) == [{}, {}]
    first, second = judged(OF_FP32, where, most_macs)
    (function,) = first | second
    assert fnmatch(function, OF_FP32) and (first | second)[function] == says
    assert bool(second) == (where == 40 and most_macs < PROBLEM.macs)  # found where the other kernel differs
    assert not (first and second)
    first, second = judged(OF_TF32, where, most_macs)
    assert first == {} and [fnmatch(name, OF_TF32) for name in second] == [True] and [*second.values()] == [says]


def test_a_kernel_that_writes_behind_its_result_is_seen():
    for found in judged("*.conv_fprop_*", CELLS, PROBLEM.macs):
        assert [*found.values()] == ["writes behind its result"]


FLIPPED = """
import sys
from pathlib import Path
from tools.gpu import correctness
from tools.gpu.kept import read_rows
from tools.gpu.large import large_checks
from tools.gpu.results import Options, Results

wanted = [each for each in large_checks(False, True) if f"{each.name} {each.precision}" in sys.argv[2:]]
correctness.checks = lambda *given: wanted
correctness.run(Results(Path(sys.argv[1]), Options(small=True, brief=True, seconds=1e9)), Options(True, True, 1e9))
"""
OF_TILE = {  # checks that launch a kernel of 128 x 64 and four elements an access
    "large fprop, octets, 128x64 fp32": "convolution.conv_fprop_128x64_v4",
    "large dgrad, octets in fp16, 128x64 tf32": "convolution_tf32_on_fp16.conv_dgrad_128x64_v4",
    "large dgrad + sums, octets, 128x64 bf16": "convolution_bf16.conv_dgrad_sums_128x64_v4",
    "large wgrad, octets, 128x64 tf32": "convolution_tf32.conv_wgrad_128x64_v4",
    "large fprop + moments, octets, warpgroups 128x64 tf32": "convolution_tf32_sm90a.conv_fprop_moments_128x64_v4",
}
OF_OTHERS = "large fprop, odd, 64x64 fp32"


@needs_pycuda
def test_one_wrong_bit_of_a_kernel_is_a_row_that_names_it(tmp_path):
    rows = tmp_path / "rows.jsonl"
    done = on_fake_driver.run(FLIPPED, str(rows), *OF_TILE, OF_OTHERS, flip="*_128x64_v4")
    assert done.returncode == 0, done.stderr
    found = {f"{row['name']} {row['precision']}": row for row in read_rows(rows).values()}
    assert found.keys() == {*OF_TILE, OF_OTHERS} and found[OF_OTHERS]["passed"]
    for name, kernel in OF_TILE.items():
        assert found[name]["passed"] is False and found[name]["says"].startswith(f"{kernel}: 1 of "), name


@pytest.mark.whole
@needs_pycuda
def test_one_wrong_bit_of_a_candidate_is_a_row_of_tiles(tmp_path):
    into, kernel = tmp_path / "tiles.jsonl", "convolution_tf32_sm90a.conv_dgrad_128x64_v4"
    words = ["--step", "tiles", "--into", str(into), "--out", str(tmp_path), "--dry-run", "--brief"]
    done = on_fake_driver.run(ROOT / "tools/gpu_check.py", *words, flip=kernel)
    assert done.returncode == 0, done.stderr
    rows = [*read_rows(into).values()]
    wrong = [row for row in rows if row.get("passed") is False]
    assert {row["kernel"] for row in wrong} == {kernel} and all("1 of" in row["says"] for row in wrong)
    assert any(row.get("best") for row in rows) and not any(kernel in row.get("best", "") for row in rows)
    timed = (tmp_path / "tile_times.jsonl").read_text()
    assert "conv_dgrad_256x128_v4" in timed and kernel not in timed
