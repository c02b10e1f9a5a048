"""Products by warpgroups, for sm_90a: values, bits, which ops run there, and barriers whose absence shows."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from layermem.backends.cuda import cuda_kernels
from layermem.backends.cuda.base import CudaCall
from layermem.backends.cuda.kernel_images.sources import SOURCES, architecture
from layermem.backends.cuda.products import warpgroup
from layermem.backends.cuda.products.implicit_gemm import conv_dgrad, conv_fprop
from layermem.backends.cuda.products.warpgroup import (
    CAPABILITY,
    NO_THRESHOLDS,
    PRECISIONS,
    THRESHOLDS,
    WARPGROUP_TILES,
    WarpgroupEngine,
    engine_of,
)
from layermem.backends.cuda.products.wgrad import conv_wgrad
from layermem.backends.cuda.support.launch import Launch
from layermem.ops import NORM_OPERANDS, Conv, ConvProblem
from tests.backends.cuda import conv_moments
from tests.backends.cuda.harness import Case, Memory, Way, case_of, kernel_names, layer_of, run_op
from tests.backends.cuda.norm_sums import dgrad
from tests.backends.cuda.slices import Slices
from tests.backends.cuda.strict import STRICT
from tests.backends.cuda.test_bands import check_bits, product
from tests.backends.cuda.test_slices import cut
from tests.cases import CASES
from tests.cases.convolution import CONV_EDGES, PRECISION_BOUNDS, edge_case
from tests.cases.fused import FUSED, problem_of
from tests.cases.net_layers import net_layer
from tests.cases.slices import WARPGROUP_CONVOLUTIONS, sliced
from tests.emulator import build as builder
from tests.emulator import emulate, fake_driver
from tests.emulator.emulate import WAYS, EmulationError
from tests.layers.harness import wants_of

HOPPER = Way(capability=CAPABILITY)
CONVOLUTION = 'type: "Convolution" convolution_param { num_output: 136 kernel_size: 3 pad: 1 stride: 2 }'
SHAPE = (3, 20, 13, 11)  # of its bottom: tiles that are not full, more stages than the ring has


@pytest.fixture(autouse=True)
def wherever_there_are_kernels(monkeypatch):
    """Small products run by warpgroups here, and those for which another engine is faster."""
    monkeypatch.setattr(warpgroup, "THRESHOLDS", NO_THRESHOLDS)


def launches_of(
    problem: ConvProblem, precision: str = "tf32", capability: str = CAPABILITY, storage: str = ""
) -> Launch:
    call = CudaCall({}, precision=precision, capability=capability, storage=storage)
    return conv_fprop(engine_of(call, "x0", problem), problem, 256, 512, 768)


def check(text: str, shape: Sequence[int], way: Way) -> dict[str, np.ndarray]:
    """A layer whose products run by warpgroups alone."""
    rng = np.random.default_rng(7)
    layer = layer_of(text, shape)
    xs = [rng.standard_normal(shape)]
    ws = [rng.standard_normal(param.tensor.shape) for param in layer.params]
    sums, long_sums, _ = PRECISION_BOUNDS[way.precision]
    return Case(layer, xs, ws, way, {"y0": sums, "dx0": sums, "dw0": long_sums, "dw1": 1e-5}, rng=rng).check()


# ---- values ---------------------------------------------------------------------------------------------------------

DEPTHWISE = {"a group a channel", "more outputs than inputs in a group"}  # of CONV_EDGES: cuda/depthwise.cu runs them


@pytest.mark.exhaustive(6)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kind", ["Convolution", "Deconvolution"])
@pytest.mark.parametrize("name", [name for name in CONV_EDGES if name not in DEPTHWISE])
def test_products_by_warpgroups_are_as_exact_as_their_precision(name, kind, precision, rng):
    edge = edge_case(name, kind, bias=True)
    layer = edge.layer("small")
    xs, ws = edge.inputs(layer, rng)
    sums, long_sums, least = PRECISION_BOUNDS[precision]
    bounds = {"y0": sums, "dx0": sums, "dw0": long_sums, "dw1": 1e-5}
    case = Case(layer, xs, ws, replace(HOPPER, precision=precision), bounds, rng=rng)
    case.check()
    assert all(case.errors[role] >= least for role in ("y0", "dx0", "dw0")), case.errors


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["Convolution by quads", "InnerProduct", "Convolution + residual + ReLU"])
def test_epilogues_are_those_of_every_gpu(name, precision):
    case_of(CASES[name], replace(HOPPER, precision=precision)).check()


@pytest.mark.exhaustive(12)
@pytest.mark.parametrize("tile", WARPGROUP_TILES, ids=lambda tile: tile.name)
@pytest.mark.parametrize("way", [Way(*way) for way in WAYS], ids=lambda way: f"{way.mode}-{way.order}-{way.copies}")
def test_every_tile_is_right_in_every_way_of_running_it(way, tile, monkeypatch):
    """Precisions differ in how B is rounded and placed: sanitizers see one, the race checker the other."""
    monkeypatch.setattr(warpgroup, "WARPGROUP_TILES", (tile,))
    precision = "bf16" if way.mode == "asan" else "tf32"
    check(CONVOLUTION, SHAPE, replace(way, precision=precision, capability=CAPABILITY))


def test_a_block_goes_on_to_its_next_tile(monkeypatch):
    """With two blocks each takes every other tile: the ring goes on where it was, after long sums and short ones."""
    monkeypatch.setattr(warpgroup, "SMS", 1)
    for name, order, copies in (("early", "forward", "early"), ("late", "reverse", "late")):
        way = replace(HOPPER, precision="tf32", order=order, copies=copies)
        found = check(CONVOLUTION, SHAPE, way)
        assert np.isfinite(found["y0"]).all(), name
        check('type: "Convolution" convolution_param { num_output: 136 kernel_size: 1 }', (2, 8, 13, 11), way)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_group_of_channels_has_its_own_product(precision):
    text = 'type: "Convolution" convolution_param { num_output: 24 kernel_size: 3 group: 3 }'
    check(text, (2, 12, 6, 5), replace(HOPPER, precision=precision))


# ---- units of rows for a BatchNorm -----------------------------------------------------------------------------------


@pytest.fixture(params=WARPGROUP_TILES, ids=lambda tile: tile.name)
def tile_of_few_blocks(request, monkeypatch):
    """The only one; its blocks take several tiles each."""
    monkeypatch.setattr(warpgroup, "WARPGROUP_TILES", (request.param,))
    monkeypatch.setattr(warpgroup, "SMS", 1)
    return request.param


@pytest.mark.exhaustive(6)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["rows of many tiles", "columns of two tiles", "groups", "a group of rows alone"])
def test_a_convolution_leaves_the_moments_of_what_it_writes(name, precision, tile_of_few_blocks):
    """A recompute, which leaves none, writes the same bits."""
    problem, way = FUSED["fprop + moments"][name], replace(HOPPER, precision=precision)
    y, left, launches = conv_moments.forward(problem, way, np.random.default_rng(3))
    np.testing.assert_array_equal(left, conv_moments.moments(y))
    memory, blobs = Memory(), conv_moments.Blobs()
    again = blobs.empty(memory, problem.maps.stored)
    operands = conv_moments.operands(problem, np.random.default_rng(3), memory, blobs)
    assert run_op(Conv(problem, bias=True), "forward", {**operands, "y0": again}, way=way) == launches == 1
    assert again.tobytes() == y.tobytes()


@pytest.mark.exhaustive(6)
@pytest.mark.parametrize("accumulate, masked, relu", [(False, False, True), (True, True, False)])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["channels of two tiles", "a map of taps", "groups of quads", "a group of rows alone"])
def test_a_dgrad_leaves_the_sums_of_what_it_writes(name, precision, accumulate, masked, relu, tile_of_few_blocks, rng):
    way = replace(HOPPER, precision=precision)
    wanted, sums, launches = dgrad(name, way, rng, relu=relu, accumulate=accumulate, masked=masked)
    np.testing.assert_array_equal(sums, wanted)
    assert launches == 0


@pytest.mark.whole
@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("way", STRICT, ids=lambda way: way.mode)
def test_units_stay_in_bounds_and_have_no_races(way, tile_of_few_blocks, rng):
    way = replace(way, precision="tf32", capability=CAPABILITY)
    y, left, _ = conv_moments.forward(FUSED["fprop + moments"]["rows of many tiles"], way, rng)
    np.testing.assert_array_equal(left, conv_moments.moments(y))
    wanted, sums, _ = dgrad("groups of quads", way, rng, accumulate=True, masked=True)
    np.testing.assert_array_equal(sums, wanted)


# ---- bits -----------------------------------------------------------------------------------------------------------


@pytest.mark.samples(2)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_no_tile_and_no_grid_changes_a_bit(precision, monkeypatch):
    found = []
    for tile in WARPGROUP_TILES:
        for multiprocessors in (1, 132):
            monkeypatch.setattr(warpgroup, "WARPGROUP_TILES", (tile,))
            monkeypatch.setattr(warpgroup, "SMS", multiprocessors)
            got = check(CONVOLUTION, SHAPE, replace(HOPPER, precision=precision, copies="either"))
            found.append({role: got[role].tobytes() for role in ("y0", "dx0", "dw0")})
    assert all(each == found[0] for each in found)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_bands_have_the_bits_of_the_whole(precision, rng):
    check_bits(product(5, 12, 132), rng, replace(HOPPER, precision=precision))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("settings, shape", WARPGROUP_CONVOLUTIONS)
def test_slices_have_the_bits_of_the_whole_batch(settings, shape, precision, monkeypatch):
    cut(monkeypatch, 4)
    text = f'type: "Convolution" convolution_param {{ {settings} bias_term: false }}'
    Slices(sliced(text, [shape]), (3,) * 4, way=replace(HOPPER, precision=precision)).check()


def test_what_slices_complete_runs_in_the_engine_of_the_whole():
    """The emulator adds alike in both engines, a GPU does not."""
    problem = net_layer("ResNet-50 res2a_branch2b", 32)
    engine = engine_of(CudaCall({}, precision="tf32", capability=CAPABILITY), "x0", problem)
    assert isinstance(engine, WarpgroupEngine) and engine.on_fp32 == engine


# ---- which ops ------------------------------------------------------------------------------------------------------


def test_the_architecture_the_precision_and_the_shape_choose_the_engine():
    problem = net_layer("ResNet-50 res2a_branch2b", 32)
    assert launches_of(problem).module == "convolution_tf32_sm90a"
    assert launches_of(problem, "bf16").module == "convolution_bf16_sm90a"
    for other in ("", "80", "89", "100", "120"):
        assert launches_of(problem, capability=other).module == "convolution_tf32"
    for precision in ("fp32", "fp32x3"):
        assert not launches_of(problem, precision).module.endswith("_sm90a")
    assert launches_of(problem, storage="bf16").module == "convolution_tf32_on_bf16"
    assert launches_of(problem_of(32, 3, 64, 56)).module == "convolution_tf32"
    assert launches_of(problem_of(32, 64, 10, 1, kernel=1)).module == "convolution_tf32"
    assert launches_of(problem_of(1, 4, 4, 2**14, kernel=1)).module == "convolution_tf32"


@pytest.mark.parametrize(
    "precision, layer, expected",
    [
        ("tf32", "ResNet-50 res2a_branch2c", {"conv_fprop"}),
        ("tf32", "ResNet-50 res2b_branch2a", set()),
        ("tf32", "ResNet-50 res3b_branch2a", set()),
        ("tf32", "VGG-16 conv2_2", {"conv_fprop"}),
        ("bf16", "ResNet-50 res2a_branch2c", {"conv_fprop"}),
        ("bf16", "ResNet-50 res2b_branch2a", set()),
        ("bf16", "ResNet-50 res4b_branch2a", {"conv_fprop"}),
        ("bf16", "VGG-16 conv2_2", set()),
        ("bf16", "VGG-16 conv3_2", {"conv_fprop", "conv_dgrad"}),
        ("bf16", "VGG-16 fc8", set()),
        ("fp32", "VGG-16 conv3_2", set()),
    ],
)
def test_products_run_by_warpgroups_where_that_pays(precision, layer, expected, monkeypatch):
    monkeypatch.setattr(warpgroup, "THRESHOLDS", THRESHOLDS)
    problem = net_layer(layer, 32)
    engine = engine_of(CudaCall({}, precision=precision, capability=CAPABILITY), "x0", problem)
    assert engine.by_warpgroups == expected
    modules = {
        "conv_fprop": conv_fprop(engine, problem, 256, 512, 768).module,
        "conv_dgrad": conv_dgrad(engine, problem, 256, 512, 768).module,
        "conv_wgrad": next(iter(conv_wgrad(engine, problem, 256, 512, 768, False, 1024))).module,
    }
    assert {product for product, module in modules.items() if module.endswith("_sm90a")} == expected


@pytest.mark.parametrize(
    "precision, layer, expected",
    [
        ("tf32", "ResNet-50 res2a_branch2c", True),
        ("tf32", "ResNet-50 res3b_branch2b", True),
        ("bf16", "ResNet-50 res2a_branch2c", True),
        ("bf16", "ResNet-50 res3b_branch2b", False),  # the other engine's tiles read as little there
    ],
)
def test_moments_change_neither_the_engine_nor_the_number_of_launches(precision, layer, expected, monkeypatch):
    """A recompute, which has no role for them, has the same bits."""
    monkeypatch.setattr(warpgroup, "THRESHOLDS", THRESHOLDS)
    for roles in (("x0", "w0", "y0", "moments"), ("x0", "w0", "y0")):
        call = CudaCall(dict.fromkeys(roles, 256), precision=precision, capability=CAPABILITY)
        (launch,) = cuda_kernels.bind(Conv(net_layer(layer, 32)), "forward", call)
        assert launch.module.endswith("_sm90a") == expected


def test_no_batch_changes_the_engine():
    for channels, outputs in ((64, 256), (3, 64), (64, 10)):
        assert len({launches_of(problem_of(n, channels, outputs, 14)).module for n in (1, 2, 64, 512)}) == 1


def test_a_launch_has_the_blocks_that_run_at_once():
    large, small = WARPGROUP_TILES
    assert [tile.name for tile in WARPGROUP_TILES] == ["256x128", "128x64"]
    launch = launches_of(net_layer("VGG-16 conv3_2", 64))
    assert launch.function == "conv_fprop_256x128_v4" and launch.grid == (132, 1, 1) and launch.block == 384
    assert launch.shared == 4 * 32 * (256 * 4 + 128 * 4) + 1024 and not launch.alternatives
    few = launches_of(problem_of(1, 256, 64, 14))
    assert few.function == "conv_fprop_128x64_v4" and few.grid == (2, 1, 1) and few.block == 256
    assert small.grid("conv_fprop", 10**6, 64, 100, 132) == (3, 1, 100)  # of each of 100 groups
    assert small.grid("conv_wgrad", 64, 640, 100, 132) == (264, 1, 1)  # of 1,000 tiles
    declared = {large: 20608, small: 6272}  # with moments, beside a KiB of the driver
    assert all(tile.blocks * (tile.shared_bytes("tf32") + own + 1024) <= 228 << 10 for tile, own in declared.items())


def test_every_kernel_is_launched(monkeypatch):
    found: set[str] = set()
    layer = layer_of(CONVOLUTION.replace("stride: 2", ""), SHAPE)  # sums are left of one phase
    for tile in WARPGROUP_TILES:
        monkeypatch.setattr(warpgroup, "WARPGROUP_TILES", (tile,))
        for precision in PRECISIONS:
            for step in (layer.forward(), *layer.backward(wants_of(layer))):
                for more in ((), ("moments",), ("norm_sums", *NORM_OPERANDS)):
                    roles = (*step.reads, *step.writes, *more)
                    call = CudaCall(dict.fromkeys(roles, 256), precision=precision, capability=CAPABILITY)
                    bound = cuda_kernels.bind(layer.record, step.step, call)
                    found |= {f"{each.module}.{each.function}" for each in bound}
    modules = [f"convolution_{precision}_sm90a" for precision in PRECISIONS]
    declared = {f"{module}.{name}" for module in modules for name in kernel_names(module)}
    assert declared <= found


def test_modules_for_one_architecture_are_compiled_for_it_where_it_is():
    assert architecture("convolution_tf32_sm90a", "90") == "90a"
    assert architecture("convolution_tf32_sm90a", "100") == "100" and architecture("convolution_tf32", "90") == "90"


LAUNCH = """
from layermem.backends.cuda.driver.context import Driver
from layermem.backends.cuda.products.gemm_tiles import (ENGINES)
from layermem.backends.cuda.products.implicit_gemm import (conv_fprop)
from layermem.backends.cuda.products.warpgroup import WarpgroupEngine
from layermem.ops import ConvProblem, Window
from layermem.schedule.ir import COMPUTE

driver = Driver(0)
allocated, window = driver.allocate(1 << 20), Window(9, 3, 1, 1, 1)
memory = int(allocated)
engine = WarpgroupEngine(*ENGINES["bf16"]._replace(by_warpgroups=frozenset({"conv_fprop"})))
problem = ConvProblem(2, 4, 8, window, window)
launch = conv_fprop(engine, problem, memory, memory + (1 << 18), memory + (1 << 19))
try:
    driver.launcher(launch, launch.args, COMPUTE)()
    driver.synchronize()
    print(launch.function)
except driver.cuda.Error as error:
    print(error)
"""


@pytest.mark.whole
@pytest.mark.skipif(not fake_driver.pycuda_is_installed(), reason="PyCUDA is not installed: `layermem setup-cuda`")
def test_a_kernel_of_another_architecture_refuses_to_run(tmp_path, monkeypatch):
    module = "convolution_bf16_sm90a"
    shutil.copyfile(builder.build(f"cuda/{module}.cu"), tmp_path / f"{module}.fatbin")
    monkeypatch.setenv("LAYERMEM_KERNELS", str(tmp_path))
    assert fake_driver.run(LAUNCH, capability=90).stdout == "conv_fprop_128x64_v4\n"
    refused = fake_driver.run(LAUNCH, capability=80)
    assert "illegal" in refused.stdout and "those of another architecture" in refused.stderr


# ---- barriers -------------------------------------------------------------------------------------------------------

BARRIERS: Mapping[str, tuple[str, str]] = {
    "a stage is filled before it is empty": ("barrier_wait(&emptied[stage], parity ^ 1u);", ""),
    "producers wait for the other phase": (
        "barrier_wait(&emptied[stage], parity ^ 1u);",
        "barrier_wait(&emptied[stage], parity);",
    ),
    "a stage is read before it is full": ("barrier_wait(&filled[stage], parity);", ""),
    "consumers wait for the other phase": (
        "barrier_wait(&filled[stage], parity);",
        "barrier_wait(&filled[stage], parity ^ 1u);",
    ),
    "products are not waited for": ("products_wait<0>(product.sum[i]);", ";"),
    "the last products are not waited for": ("products_wait<0>", "products_wait<1>"),
    "copies have not landed": ("barrier_arrive_behind_copies(", "barrier_arrive("),
    "B is not fenced": ("proxy_fence();", ""),
    "B is placed behind the arrival": (
        "b.place(to + T::A_BYTES);\n            proxy_fence();\n            "
        "barrier_arrive(&this->filled[this->stage]);",
        "barrier_arrive(&this->filled[this->stage]);\n            "
        "b.place(to + T::A_BYTES);\n            proxy_fence();",
    ),
    "a stage is never given back": ("barrier_arrive(&emptied[stage]);", ";"),
    "one lane gives back what others read": (
        "        warp_sync();\n        if (lane_of_warp() == 0)",
        "        if (lane_of_warp() == 0)",
    ),
    "one warp gives back what others read": ("T::CONSUMERS / WARP);", "1);"),
    "half the arrivals fill a stage": ("FILLING =\n        2 * PRODUCERS;", "FILLING = PRODUCERS;"),
    "the phase never changes": ("stage = 0, parity ^= 1u;", "stage = 0;"),
    "barriers are used before they are made": ("    block_sync();\n    Ring ring", "    Ring ring"),
}


FORWARD = """
#include "conv_warpgroup.cuh"
using Small = lm::W128x64<lm::Precision::TF32>;
LM_KERNEL(conv_fprop_128x64_v4, lm::FpropArgs<float>, p, Small::ALL_THREADS, Small::BLOCKS) {
    lm::warpgroup_fprop<Small>(p);
}
"""  # what is compiled, so that it is compiled soon
SHOWING = (("plain", "forward", "early"), ("plain", "reverse", "late"), ("race", "shuffled", "late"))


def forward(folder: Path, monkeypatch: pytest.MonkeyPatch, way: Way) -> bytes:
    """The bits that conv_fprop of the sources in a folder writes."""
    load, rng, memory = emulate.load, np.random.default_rng(7), Memory()
    source = folder / "forward.cu"
    source.write_text(FORWARD, encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(emulate, "load", lambda _, mode, **settings: load(source, mode, **settings))
        patch.setattr(warpgroup, "WARPGROUP_TILES", WARPGROUP_TILES[1:])
        patch.setattr(warpgroup, "SMS", 1)
        layer = layer_of(CONVOLUTION, SHAPE)
        given = {"x0": SHAPE, "w0": layer.params[0].tensor.shape, "w1": layer.params[1].tensor.shape}
        arrays = {role: memory.stored(rng.standard_normal(shape), np.float32) for role, shape in given.items()}
        arrays["y0"] = memory.stored(np.full(layer.tops[0].shape, np.nan), np.float32)
        run_op(layer.record, "forward", arrays, way=way)
    return arrays["y0"].tobytes()


@pytest.mark.whole
@pytest.mark.samples(8)
@pytest.mark.parametrize("what", BARRIERS)
def test_a_barrier_that_is_missing_or_wrong_is_caught(what, tmp_path, monkeypatch):
    """A changed header gives other bits, a block that never ends, or a report of the race checker; the unchanged header
    gives none of these."""
    right, wrong = BARRIERS[what]
    header = (SOURCES / "warpgroup_gemm.cuh").read_text(encoding="utf-8")
    assert header.count(right) >= 1
    unchanged, changed = tmp_path / "unchanged", tmp_path / "changed"
    for folder in (unchanged, changed):
        folder.mkdir()
        for own in ("conv_warpgroup.cuh", "warpgroup_tiles.cuh", "warpgroup_units.cuh"):
            shutil.copy(SOURCES / own, folder)
    (changed / "warpgroup_gemm.cuh").write_text(header.replace(right, wrong), encoding="utf-8")
    for mode, order, copies in SHOWING:
        way = Way(mode, order, copies, "tf32", capability=CAPABILITY)
        wanted = forward(unchanged, monkeypatch, way)
        try:
            if forward(changed, monkeypatch, way) != wanted:
                return
        except EmulationError:
            return
    pytest.fail("nothing shows it")
