"""conv_fprop by a patch of the image: the bits of the kernels that copy every window, where it runs, and its banks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from layermem.backends.cuda.kernel_images.sources import modules
from layermem.backends.cuda.products import conv_patch, gemm_tiles, implicit_gemm
from layermem.backends.cuda.products.gemm_tiles import BF16_OF_DATA, ENGINES
from layermem.backends.cuda.products.implicit_gemm import NO_EPILOGUE, Epilogue, conv_fprop
from layermem.backends.cuda.support.launch import Launch
from layermem.ops import NARROW, ConvProblem
from tests.backends.cuda.harness import Memory, kernel_names
from tests.cases.fused import FUSED, first_layer, problem_of
from tests.cases.net_layers import net_layer
from tests.emulator import emulate
from tests.emulator.emulate import WAYS
from tests.emulator.hosts import Packed

SHARED_BYTES = {"75": 65536, "80": 166912, "86": 101376, "89": 101376, "90": 232448}  # that a block may have

ALEXNET = net_layer("AlexNet conv1", 256)
RESNET = net_layer("ResNet-50 conv1", 128)
VGG = net_layer("VGG-16 conv1_1", 64)
MOBILENET = net_layer("MobileNet conv1", 128)
PROBLEMS = FUSED["fprop by a patch"]


def operands(problem: ConvProblem, memory: Memory, skipped: int = 0) -> dict[str, np.ndarray]:
    """`skipped` images before those of the problem, of which rows have another place among 16 bytes."""
    rng = np.random.default_rng(7)
    images = (problem.n + skipped, *problem.image.shape[1:])
    return {
        "image": memory.stored(rng.standard_normal(images) + 0.3, np.float32)[skipped:],
        "weights": memory.stored(rng.standard_normal(problem.filter.shape), np.float32),
        "bias": memory.stored(rng.standard_normal(problem.k), np.float32),
        "residual": memory.stored(rng.standard_normal(problem.maps.shape), np.float32),
    }


def results(
    launch: Launch, given: dict[str, np.ndarray], made: list[np.ndarray], memory: Memory, mode: str = "plain"
) -> list[bytes]:
    """What the launch makes of poison."""
    for array in made:
        array.view(np.uint8)[...] = 0xFF
    kernels = emulate.load(f"cuda/{launch.module}.cu", mode)
    buffers = [*given.values(), *made]
    kernels.launch(launch.function, launch.grid, launch.block, launch.args, launch.shared, buffers=buffers)
    memory.check()
    return [array.tobytes() for array in made]


def both(problem: ConvProblem, precision: str, *, leaves_moments: bool, skipped: int = 0, mode: str = "plain") -> None:
    """A launch by patches has the bits of its alternative."""
    memory = Memory()
    given = operands(problem, memory, skipped)
    maps, mask, moments = (memory.bytes(n) for n in (problem.maps.nbytes, problem.k * 4096, problem.moments.nbytes))
    at = {name: array.ctypes.data for name, array in given.items()}
    masked = implicit_gemm.masks_bytes(problem)
    epilogue = Epilogue(at["bias"], at["residual"], mask.ctypes.data if masked else 0, relu=True)
    if leaves_moments:
        epilogue = Epilogue(at["bias"])
    launch = conv_fprop(
        ENGINES[precision],
        problem,
        maps.ctypes.data,
        at["image"],
        at["weights"],
        epilogue,
        moments.ctypes.data if leaves_moments else 0,
    )
    assert "_patch_" in launch.function and "_patch_" not in launch.alternatives[0].function
    made = [maps, moments if leaves_moments else mask]
    plain = results(launch.alternatives[0], given, made, memory)
    assert not np.isnan(np.frombuffer(plain[0], np.float32)).any()
    assert results(launch, given, made, memory, mode) == plain


@pytest.mark.exhaustive(6)
@pytest.mark.parametrize("leaves_moments", [False, True], ids=["epilogue", "moments"])
@pytest.mark.parametrize("precision", ENGINES)
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_patch_gives_the_bits_of_windows(name, precision, leaves_moments):
    both(PROBLEMS[name], precision, leaves_moments=leaves_moments)


@pytest.mark.parametrize("skipped", [1, 2, 3])
def test_a_slice_may_begin_anywhere_among_16_bytes(skipped):
    problem = PROBLEMS["odd rows"]
    assert problem.image.count // problem.n % 4 == 1
    both(problem, "tf32", leaves_moments=True, skipped=skipped)


@pytest.mark.samples(12)
@pytest.mark.parametrize("mode", [mode for mode, *_ in WAYS if mode != "plain"])
@pytest.mark.parametrize("precision", ["tf32", "fp32"])
@pytest.mark.parametrize("name", ["wide windows", "tiles of many images", "two groups, dilated"])
def test_a_patch_stays_in_its_shared_memory_and_has_no_races(name, precision, mode):
    both(PROBLEMS[name], precision, leaves_moments=name == "wide windows", mode=mode)


def engines_of_data() -> list[gemm_tiles.GemmEngine]:
    widening = (ENGINES[name].on(word, wide_image=True) for name in ("fp32", "tf32") for word in NARROW)
    return [*widening, BF16_OF_DATA]


@pytest.mark.parametrize("engine", engines_of_data(), ids=lambda engine: engine.module)
@pytest.mark.parametrize("outputs", [96, 64])
def test_maps_in_16_bits_are_those_of_windows(outputs, engine):
    problem, memory = first_layer(outputs), Memory()
    given = operands(problem, memory)
    maps, at = memory.bytes(problem.maps.nbytes // 2), {name: array.ctypes.data for name, array in given.items()}
    launch = conv_fprop(engine, problem, maps.ctypes.data, at["image"], at["weights"], Epilogue(at["bias"], relu=True))
    assert "_data_patch_" in launch.function
    plain = results(launch.alternatives[0], given, [maps], memory)
    assert results(launch, given, [maps], memory) == plain


def test_what_lies_beside_a_window_does_not_reach_it():
    """The padding of sums along k is zero, whatever the image holds."""
    problem, memory = PROBLEMS["odd rows"], Memory()
    given = operands(problem, memory)
    given["image"][1, 3] = np.inf
    given["image"][2, -1] = np.nan
    maps = memory.bytes(problem.maps.nbytes)
    launch = conv_fprop(
        ENGINES["tf32"], problem, maps.ctypes.data, given["image"].ctypes.data, given["weights"].ctypes.data
    )
    plain, patch = (
        np.frombuffer(results(each, given, [maps], memory)[0], np.float32) for each in (launch.alternatives[0], launch)
    )
    assert np.isnan(plain).any() and np.isfinite(plain).sum() > plain.size / 2
    np.testing.assert_array_equal(patch, plain)


# -- which launches ----------------------------------------------------------------------------------------------------


def function_of(precision: str, problem: ConvProblem, epilogue: Epilogue = NO_EPILOGUE) -> str:
    return conv_fprop(ENGINES[precision], problem, 0, 0, 0, epilogue).function


@pytest.mark.parametrize("precision", ENGINES)
def test_first_layers_are_computed_by_patches(precision):
    widest = "128x64" if precision == "fp32x3" else "128x96"  # which has two sums for each element
    assert function_of(precision, ALEXNET) == f"conv_fprop_patch_{widest}_v1"
    assert function_of(precision, RESNET) == function_of(precision, VGG) == "conv_fprop_patch_128x64_v1"


def test_in_fp32_a_tile_is_not_half_idle():
    assert function_of("tf32", MOBILENET) == "conv_fprop_patch_128x64_v1"
    assert "_patch_" not in function_of("fp32", MOBILENET)


def test_other_layers_have_no_patch():
    pointwise = problem_of(8, 3, 64, 56, 1)
    apart = problem_of(8, 3, 64, 56, 2, 4, pad=0)  # windows do not overlap
    many = problem_of(8, 9, 64, 56, pad=0)
    large = problem_of(8, 3, 64, 1200, 11, pad=0)
    assert not any("_patch_" in function_of("tf32", each) for each in (pointwise, apart, many, large))
    assert "_patch_" not in function_of("tf32", problem_of(8, 4, 64, 56, 5, pad=0))  # runs of four are copied at once


@pytest.mark.parametrize("capability", SHARED_BYTES)
@pytest.mark.parametrize("problem", [ALEXNET, RESNET, VGG, MOBILENET], ids=lambda each: f"{each.kernel[0]}x{each.k}")
def test_every_gpu_has_the_shared_memory_of_one_of_the_launches(problem, capability):
    launch = conv_fprop(ENGINES["tf32"], problem, 0, 0, 0, moments=256)
    static = 128 * 16  # places of windows
    fits = [each for each in (launch, *launch.alternatives) if each.shared + static <= SHARED_BYTES[capability]]
    large = {"75": (ALEXNET,), "86": (ALEXNET,), "89": (ALEXNET,)}.get(capability, ())  # 108 KiB
    by_patch = problem not in large
    assert ("_patch_" in fits[0].function) == by_patch


@pytest.mark.parametrize("problem", [ALEXNET, RESNET, VGG, *PROBLEMS.values()], ids=str)
def test_the_patch_is_large_enough_for_every_tile(problem):
    """The largest of all tiles of the batch, counted row by row."""
    (kernel_h, _), (stride_h, _), (dilation_h, _) = problem.kernel, problem.stride, problem.dilation
    reach, most = (kernel_h - 1) * dilation_h + 1, 0
    for first in range(0, problem.positions, 128):
        lines = np.unique(np.arange(first, min(first + 128, problem.positions)) // problem.out_w)
        images, counts = np.unique(lines // problem.out_h, return_counts=True)
        rows = sum((int(count) - 1) * stride_h + reach for count in counts)
        most = max(most, rows * problem.w * problem.c + 3 * len(images))
    assert most <= conv_patch.patch_floats(problem, 128)


def test_every_kernel_by_patches_is_launched_here():
    named = {f"{module}.{name}" for module in modules() for name in kernel_names(module) if "_patch_" in name}
    engines = [*ENGINES.values(), *engines_of_data()]
    launches = [conv_fprop(engine, problem, 0, 0, 0) for engine in engines for problem in (ALEXNET, VGG)]
    assert {f"{each.module}.{each.function}" for each in launches} == named


# -- banks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "conflicts"),
    [(replace(ALEXNET, n=1), 1.02), (replace(VGG, n=1), 1.4), (replace(RESNET, n=1), 2.0)],
    ids=["11x11 by 4", "3x3", "7x7 by 2"],
)
def test_reads_of_the_patch_meet_few_conflicts(problem, conflicts):
    """Eight windows side by side lie stride x channels banks apart, and a read has four elements of k of each: at 6
    these meet by twos, and some do where a row of taps ends among them."""
    memory = Memory()
    given, maps = operands(problem, memory), memory.bytes(problem.maps.nbytes)
    launch = conv_fprop(
        ENGINES["tf32"], problem, maps.ctypes.data, given["image"].ctypes.data, given["weights"].ctypes.data
    )
    kernels = emulate.load(f"cuda/{launch.module}.cu", "race")
    use = kernels.bank_use(launch.function, 4, launch.block, Packed(launch.args), launch.shared)
    reads = [row for row in use if (row.verb, row.bytes_per_lane) == ("read", 4)]
    assert sum(row.wavefronts for row in reads) <= conflicts * sum(row.least for row in reads)
