"""Products of blobs in bfloat16 by warpgroups: values, ends, which ops run there, and barriers whose absence shows."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from layermem.backends.cuda import cuda_kernels
from layermem.backends.cuda.base import CudaCall
from layermem.backends.cuda.kernel_images.sources import SOURCES
from layermem.backends.cuda.products import warpgroup
from layermem.backends.cuda.products.gemm_tiles import ENGINES, FPROP, PACKED_BF16, WGRAD
from layermem.backends.cuda.products.implicit_gemm import conv_dgrad, conv_fprop
from layermem.backends.cuda.products.warpgroup import (
    CAPABILITY,
    NO_THRESHOLDS,
    PACKED_TILES,
    THRESHOLDS,
    WarpgroupTile,
    engine_of,
)
from layermem.backends.cuda.products.wgrad import SplitK, conv_wgrad
from layermem.backends.narrow import narrowed
from layermem.ops import ConvProblem, Window
from tests.backends.cuda.harness import Memory, Way, kernel_names, layer_of, run_op
from tests.backends.cuda.masked_dgrad import masked_dgrad, stored
from tests.backends.cuda.narrow_steps import taken_steps
from tests.backends.cuda.slices import Slices
from tests.backends.cuda.test_narrow_kernels import assert_same, check
from tests.backends.cuda.test_slices import cut, cut_images
from tests.cases import CASES
from tests.cases.convolution import OCTETS, PACKED, conv_case, conv_text
from tests.cases.fused import problem_of
from tests.cases.net_layers import net_layer
from tests.cases.slices import sliced
from tests.emulator import emulate
from tests.emulator.emulate import WAYS, EmulationError
from tests.op_case import OpCase

HOPPER = Way(precision="bf16", capability=CAPABILITY)
MODULE = f"{PACKED_BF16.module}_sm90a"
ROLES = ("x0", "y0", "dx0", "dy0")


@pytest.fixture(autouse=True)
def wherever_there_are_kernels(monkeypatch):
    """Small products run by warpgroups here."""
    monkeypatch.setattr(warpgroup, "THRESHOLDS", NO_THRESHOLDS)


def call_of(storage: str = "bf16", precision: str = "bf16", capability: str = CAPABILITY) -> CudaCall:
    narrow = ROLES if storage else ()
    return CudaCall({}, precision=precision, capability=capability, storage=storage, narrow=narrow)


# ---- values ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*PACKED, "long sum"])
def test_a_product_by_warpgroups_is_that_of_its_operands(name):
    """Sums of whole numbers are exact, so their order is no matter."""
    assert check(conv_case((OCTETS | PACKED)[name]), "bf16", HOPPER, exact=True) >= 3


@pytest.mark.parametrize("name", ["Convolution by octets", "Deconvolution by octets"])
def test_ends_are_those_of_every_gpu(name):
    """Bias, residual, ReLU and its bits, sums that are added; a Deconvolution with a bias runs on the other engine."""
    assert check(CASES[name], "bf16", HOPPER, exact=True) >= 3


@pytest.mark.whole
@pytest.mark.samples(2)
@pytest.mark.parametrize("way", [Way(*way) for way in WAYS if way[0] != "plain"], ids=lambda way: way.mode)
def test_they_stay_in_bounds_and_have_no_races(way):
    assert (
        check(conv_case(PACKED["taps and phases"]), "bf16", replace(HOPPER, mode=way.mode, order=way.order), exact=True)
        >= 3
    )


@pytest.mark.whole
@pytest.mark.samples(2)
@pytest.mark.parametrize("order, copies", [("forward", "early"), ("reverse", "late"), ("shuffled", "either")])
def test_a_block_goes_on_to_its_next_tile(order, copies, monkeypatch):
    monkeypatch.setattr(warpgroup, "SMS", 1)
    way = replace(HOPPER, order=order, copies=copies)
    assert check(conv_case(PACKED["several tiles, more stages than the ring has"]), "bf16", way, exact=True) >= 3


@pytest.mark.samples(2)
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("mode", ["plain", "race"])
def test_bits_of_a_relu_end_the_data_gradient(mode, accumulate, rng):
    for name in ("one by one, strided", "whole bytes of two tiles"):  # of words of 32 channels, and not
        together, apart = masked_dgrad(name, accumulate, replace(HOPPER, mode=mode), rng, "bf16")
        assert together.tobytes() == apart.tobytes()


# ---- weight gradients -----------------------------------------------------------------------------------------------

WGRAD_TILES = [tile for tile in PACKED_TILES if WGRAD in tile.products]


@pytest.fixture(params=WGRAD_TILES, ids=lambda tile: tile.name)
def wgrad_tile(request, monkeypatch) -> WarpgroupTile:
    """The only one that weight gradients have."""
    use(request.param, monkeypatch)
    return request.param


def use(tile: WarpgroupTile, monkeypatch: pytest.MonkeyPatch) -> None:
    of_others = (each for each in PACKED_TILES if each.products != tile.products)
    monkeypatch.setattr(warpgroup, "PACKED_TILES", (tile, *of_others))


@pytest.mark.samples(12)
@pytest.mark.parametrize(
    "mode, order, copies", [("plain", "reverse", "late"), ("race", "shuffled", "either"), ("asan", "forward", "early")]
)
def test_a_weight_gradient_is_that_of_its_operands(mode, order, copies, wgrad_tile, monkeypatch):
    """Full tiles and others, of two groups and two parts of the batch, all by one block."""
    monkeypatch.setattr(warpgroup, "SMS", 1)
    cut(monkeypatch, 2)
    way = replace(HOPPER, mode=mode, order=order, copies=copies)
    case = OpCase("", conv_text(528, "kernel_size: 3 stride: 2 pad: 1 group: 2"), {"small": [(3, 48, 13, 9)]})
    wgrads = [taken for taken in taken_steps(case, "bf16", "bf16", exact=True) if taken.step.step == "wgrad"]
    for taken in wgrads[:1]:
        assert "x0" in taken.narrow
        assert_same(taken, way, "")
        assert_same(taken, way, " added", adds=["dw0", "dw1"])


def test_no_tile_no_grid_and_no_band_of_outputs_changes_a_bit(rng, monkeypatch):
    problem, split, memory = problem_of(3, 40, 264, 7), SplitK(2, 2), Memory()
    maps, image = (
        narrowed(memory.stored(rng.standard_normal(tensor.shape), np.float32), "bfloat16")
        for tensor in (problem.maps, problem.image)
    )

    def gradient(first: int = 0) -> bytes:
        """Of the outputs from `first` on, by their part of the same maps."""
        band = replace(problem, k=problem.k - first)
        parts, dw = (np.full((n, band.filter.count), np.nan, np.float32) for n in (split.parts, 1))
        addresses = dw.ctypes.data, maps.ctypes.data + maps.itemsize * first, image.ctypes.data
        engine = engine_of(call_of(), "x0", problem)
        for each in conv_wgrad(engine, band, *addresses, False, parts.ctypes.data, split=split, maps_pitch=problem.k):
            kernels = emulate.load(f"cuda/{each.module}.cu", "plain")
            buffers = [dw, parts, maps, image]
            kernels.launch(each.function, each.grid, each.block, each.args, each.shared, buffers=buffers)
        return dw.tobytes()

    found = []
    for tile in WGRAD_TILES:
        use(tile, monkeypatch)
        for multiprocessors in (1, 132):
            monkeypatch.setattr(warpgroup, "SMS", multiprocessors)
            found.append(gradient())
    assert len({*found}) == 1
    of_output = len(found[0]) // problem.k
    assert gradient(first=8) == found[0][8 * of_output :]


@pytest.mark.samples(2)
@pytest.mark.parametrize("counts, mode", [((3,) * 4, "plain"), ((1,) * 12, "race")])
def test_slices_have_the_bits_of_the_whole_batch(counts, mode, wgrad_tile, monkeypatch):
    """A slice ends within a stage, whose rest is summed in tiles of fp32."""
    cut(monkeypatch, 4)
    text = conv_text(16, "kernel_size: 3 bias_term: false")
    Slices(sliced(text, [(12, 8, 7, 9)]), counts, way=replace(HOPPER, mode=mode), storage="bf16").check()


def test_slices_have_the_bits_of_images_in_pieces(wgrad_tile, monkeypatch):
    cut_images(monkeypatch, 2)
    text = conv_text(8, "kernel_size: 1 bias_term: false")
    Slices(sliced(text, [(4, 8, 9, 11)]), (2, 2), way=HOPPER, storage="bf16", adds=True).check()


def test_what_slices_complete_is_multiplied_by_warpgroups_too():
    """On a GPU other products add in another way."""
    engine = engine_of(call_of(), "x0", problem_of(8, 64, 64, 9)).on_fp32
    assert engine.module == "convolution_bf16" and engine.by_warpgroups == {WGRAD}
    stage = ConvProblem(32, 72, 16, Window(1, 1), Window(1, 1))
    (launch,) = conv_wgrad(engine, stage, 256, 512, 768, False, 1024, split=SplitK(32, 1))
    assert launch.module == "convolution_bf16_sm90a"
    fprop_alone = engine_of(call_of(), "x0", problem_of(8, 64, 64, 9))._replace(by_warpgroups=frozenset({FPROP}))
    assert fprop_alone.on_fp32 == ENGINES["bf16"]


# ---- which ops ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "layer, expected",
    [
        ("VGG-16 conv3_2", {"conv_fprop", "conv_dgrad", "conv_wgrad"}),
        ("VGG-16 conv3_1", {"conv_fprop", "conv_wgrad"}),
        ("VGG-16 conv5_1", {"conv_fprop", "conv_dgrad", "conv_wgrad"}),
        ("ResNet-50 res5b_branch2b", {"conv_wgrad"}),  # too few tiles for the others
        ("ResNet-50 res4a_branch2c", set()),
        ("ResNet-50 res5b_branch2a", set()),
        ("GoogLeNet inception_4e/3x3", {"conv_fprop"}),  # tiles of outputs that are not full
        ("VGG-16 conv2_2", set()),
    ],
)
def test_packed_products_run_by_warpgroups_where_that_pays(layer, expected, monkeypatch):
    monkeypatch.setattr(warpgroup, "THRESHOLDS", THRESHOLDS)
    problem = net_layer(layer, 64)
    engine = engine_of(call_of(), "x0", problem)
    assert engine.by_warpgroups == expected
    modules = {
        "conv_fprop": conv_fprop(engine, problem, 256, 512, 768).module,
        "conv_dgrad": conv_dgrad(engine, problem, 256, 512, 768).module,
        "conv_wgrad": next(iter(conv_wgrad(engine, problem, 256, 512, 768, False, 1024))).module,
    }
    assert {product for product, module in modules.items() if module == MODULE} == expected
    for other in (call_of(capability="80"), call_of("fp16", "tf32"), call_of(precision="tf32")):
        assert conv_fprop(engine_of(other, "x0", problem), problem, 256, 512, 768).module != MODULE


def test_an_inner_product_and_bits_beside_words_stay_on_the_other_engine():
    inner = problem_of(8, 64, 64, 1, kernel=1)
    assert not engine_of(call_of(), "x0", inner).by_warpgroups
    for odd in (problem_of(8, 40, 64, 9), problem_of(8, 64, 96, 9)):  # or stages of two taps
        assert engine_of(call_of(), "x0", odd).by_warpgroups == {"conv_fprop", "conv_wgrad"}


def test_dgrad_with_a_bias_stays_on_the_other_engine():
    problem = problem_of(8, 64, 64, 9)
    engine = engine_of(call_of(), "y0", problem)
    assert conv_dgrad(engine, problem, 256, 512, 768).module == MODULE
    assert conv_dgrad(engine, problem, 256, 512, 768, bias=1024).module == PACKED_BF16.module


def test_what_a_batch_norm_needs_comes_from_launches_of_its_own():
    """A tile has a unit and a half."""
    problem = problem_of(8, 64, 64, 9)
    for capability, leaves in (("", True), (CAPABILITY, False)):
        engine = engine_of(call_of(capability=capability), "x0", problem)
        assert warpgroup.leaves_moments(engine) == warpgroup.leaves_norm_sums(engine, problem) == leaves


def test_a_launch_has_the_blocks_that_run_at_once():
    tile, *of_wgrad = PACKED_TILES
    problem = net_layer("VGG-16 conv3_2", 64)
    launch = conv_fprop(engine_of(call_of(), "x0", problem), problem, 256, 512, 768)
    assert launch.function == "conv_fprop_192x256_v8" and launch.grid == (132, 1, 1) and launch.block == 384
    assert launch.shared == 3 * (192 + 256) * 128 + 1024 and not launch.alternatives
    assert tile.shared_bytes("bf16") + 12 * 1024 <= 227 << 10
    wgrad, few = (
        next(iter(conv_wgrad(engine_of(call_of(), "x0", each), each, 256, 512, 768, False, 1024)))
        for each in (net_layer("VGG-16 conv4_2", 64), problem_of(1, 256, 256, 9))
    )
    assert wgrad.function == "conv_wgrad_256x192_v8" and wgrad.grid == (132, 1, 1)  # 24 of 4 parts, two a block
    assert few.function == "conv_wgrad_256x128_v8" and few.grid == (18, 1, 1)
    assert all(each.shared_bytes("bf16") + 1024 <= 227 << 10 for each in of_wgrad)


def test_every_kernel_is_launched(monkeypatch):
    found: set[str] = set()
    layer = layer_of(conv_text(64, "kernel_size: 3"), (2, 32, 6, 5))
    call = replace(call_of(), addresses=dict.fromkeys((*ROLES, "w0", "w1", "dw0", "workspace"), 256))
    for tile in WGRAD_TILES:
        use(tile, monkeypatch)
        for step in ("forward", "dgrad", "wgrad"):
            found |= {each.function for each in cuda_kernels.bind(layer.record, step, call) if each.module == MODULE}
    assert set(kernel_names(MODULE)) == found


# ---- barriers -------------------------------------------------------------------------------------------------------

RING = "struct PackedRing"
BARRIERS: Mapping[str, tuple[str, str]] = {
    "a stage is filled before it is empty": ("this->wait_until_empty();", ""),
    "a stage is read before it is full": ("this->wait_until_full();", ""),
    "copies have not landed": ("async_wait<NEWER>();", ""),
    "copies of the stage before have not landed": ("announce<1>();", "announce<2>();"),
    "copies are not fenced": ("proxy_fence();", ""),
    "less is expected than a copy brings": ("stage], T::B_BYTES);", "stage], T::B_BYTES - 16);"),
    "more is expected than a copy brings": ("stage], T::B_BYTES);", "stage], T::B_BYTES + 16);"),
    "a copy brings another stage": ("operand.source_of(k)", "operand.source_of(0)"),
    "the last stage is never announced": ("if (is_behind) announce<0>();", ""),
    "a stage is given back before its products are done": ("products_wait<1>();", ""),
    "the stage at hand is given back": ("this->give_back(before(1));", "this->give_back(this->stage);"),
    "the last stage is not given back": ("if (depth > 0) this->give_back(before(1));", ""),
    "the last products are not waited for": ("products_wait<0>(product.sum[i]);", ";"),
}

FORWARD = """
#include "conv_warpgroup.cuh"
using namespace lm;
LM_WARPGROUP_PACKED(192x256, Bf16)
"""
SHOWING = (("plain", "forward", "early"), ("plain", "reverse", "late"), ("race", "shuffled", "late"))


def forward(folder: Path, monkeypatch: pytest.MonkeyPatch, way: Way) -> bytes:
    """The bits that conv_fprop of the sources in a folder writes."""
    load, rng, memory = emulate.load, np.random.default_rng(7), Memory()
    source = folder / "forward.cu"
    source.write_text(FORWARD, encoding="utf-8")

    def own(path: str, mode: str, **settings: str) -> emulate.Kernels:
        return load(source if MODULE in path else path, mode, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(emulate, "load", own)
        patch.setattr(warpgroup, "SMS", 1)
        layer = layer_of(conv_text(8, "kernel_size: 3 pad: 1"), (2, 48, 12, 9))  # two tiles of seven stages
        x, w, b = (rng.standard_normal(s) for s in (layer.bottoms[0].shape, *(p.tensor.shape for p in layer.params)))
        arrays = {
            "x0": stored(memory, x, "bf16"),
            "w0": memory.stored(w, np.float32),
            "w1": memory.stored(b, np.float32),
        }
        arrays["y0"] = stored(memory, np.full(layer.tops[0].shape, np.nan), "bf16")
        run_op(layer.record, "forward", arrays, way=way, storage="bf16")
    return arrays["y0"].tobytes()


@pytest.mark.whole
@pytest.mark.samples(8)
@pytest.mark.parametrize("what", BARRIERS)
def test_a_barrier_that_is_missing_or_wrong_is_caught(what, tmp_path, monkeypatch):
    """A changed header gives other bits, a block that never ends, or a report of the race checker; the unchanged header
    gives none of these."""
    right, wrong = BARRIERS[what]
    header = (SOURCES / "warpgroup_gemm.cuh").read_text(encoding="utf-8")
    others, ring = header.split(RING)
    assert right in ring
    unchanged, changed = tmp_path / "unchanged", tmp_path / "changed"
    for folder in (unchanged, changed):
        folder.mkdir()
        for own in ("conv_warpgroup.cuh", "warpgroup_tiles.cuh", "warpgroup_units.cuh"):
            shutil.copy(SOURCES / own, folder)
    (changed / "warpgroup_gemm.cuh").write_text(RING.join([others, ring.replace(right, wrong, 1)]), encoding="utf-8")
    for mode, order, copies in SHOWING:
        way = replace(HOPPER, mode=mode, order=order, copies=copies)
        wanted = forward(unchanged, monkeypatch, way)
        try:
            if forward(changed, monkeypatch, way) != wanted:
                return
        except EmulationError:
            return
    pytest.fail("nothing shows it")
