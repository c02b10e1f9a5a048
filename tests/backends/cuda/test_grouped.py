"""Convolutions in groups of a few channels: kernels of their own, where they run, parts of weight gradients."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from layermem.backends.cuda import cuda_kernels
from layermem.backends.cuda.base import CudaCall
from layermem.backends.cuda.products import grouped
from layermem.backends.cuda.products.direct_problems import GROUP_SIZES, STRIDES
from layermem.backends.cuda.products.gemm_tiles import ENGINES
from layermem.backends.cuda.products.grouped import BandParts, GroupedWgrad, parts_of
from layermem.backends.cuda.support.launch import THREADS, Launch
from layermem.ops import BatchSlice, Conv, ConvProblem, Window
from tests.backends.cuda.conv_moments import moments
from tests.backends.cuda.harness import PLAIN, Case, Memory, Way, layer_of, run_op
from tests.backends.cuda.slices import Slices
from tests.backends.cuda.test_narrow_kernels import check as check_narrow
from tests.cases.convolution import GROUPED, PRECISION_BOUNDS, conv_case, edge_layer
from tests.cases.fused import problem_of
from tests.cases.slices import sliced
from tests.emulator import emulate
from tests.emulator.hosts import Packed

LONG_SUMS = {"dw0": 1e-5, "dw1": 1e-5}

ROLES = {"forward": "x0 w0 y0", "dgrad": "dy0 w0 dx0", "wgrad": "x0 dy0 dw0"}
KINDS = [
    (name, kind)
    for name in GROUPED
    for kind in ("Convolution", "Deconvolution")
    if kind == "Convolution" or "wide" not in name  # of which nothing would be left
]


def drawn(name: str, kind: str, way: Way = PLAIN) -> Case:
    text, shape = edge_layer(GROUPED[name], kind)
    layer = layer_of(text, shape)
    rng = np.random.default_rng(17)
    ws = [rng.standard_normal(param.tensor.shape) for param in layer.params]
    return Case(layer, [rng.standard_normal(shape)], ws, way, LONG_SUMS, rng=rng)


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_grouped_convolutions_agree_with_sums_in_double_precision(name, kind):
    drawn(name, kind).check()


@pytest.mark.parametrize("mode", ["asan", "race"])
@pytest.mark.parametrize(("name", "kind"), [("4", "Convolution"), ("8/2", "Deconvolution"), ("16", "Convolution")])
def test_grouped_convolutions_stay_in_bounds_and_have_no_races(name, kind, mode):
    drawn(name, kind, Way(mode)).check_once()


@pytest.mark.parametrize("name", ["4/2", "8"])
def test_no_precision_changes_a_bit(name):
    want = drawn(name, "Convolution").check_once()
    for precision in PRECISION_BOUNDS:
        got = drawn(name, "Convolution", Way(precision=precision)).check_once()
        for role in ("y0", "dx0", "dw0", "dw1"):
            np.testing.assert_array_equal(got[role], want[role], err_msg=f"{role} in {precision}")


@pytest.mark.parametrize(("word", "precision"), [("bf16", "bf16"), ("fp16", "tf32"), ("bf16", "fp32x3")])
@pytest.mark.parametrize("name", ["4", "8/2"])
def test_kernels_in_16_bits_have_the_bits_of_converted_operands(name, word, precision):
    assert check_narrow(conv_case(GROUPED[name]), word, Way(precision=precision)) == 3


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["4", "8/2", "16"])
def test_no_infinity_or_nan_reaches_another_group(name, value):
    text, shape = edge_layer(GROUPED[name], more="bias_term: false")
    layer = layer_of(text, shape)
    ws, dy = [np.ones(layer.params[0].tensor.shape)], np.ones(layer.tops[0].shape)
    for place in ((0, 0, 0, 0), (shape[0] - 1, 7, shape[2] - 1, shape[3] - 1)):
        one = np.zeros(shape)
        one[place] = 1
        touched = Case(layer, [one], ws).run_unchecked(dy)
        got = Case(layer, [np.where(one == 1, value, 1.0)], ws).run_unchecked(dy)
        for role in ("y0", "dw0"):
            np.testing.assert_array_equal(~np.isfinite(got[role]), touched[role] != 0, err_msg=role)
    one = np.zeros(dy.shape)
    one[0, 5, 0, 1] = 1
    x = [np.ones(shape)]
    touched, got = (Case(layer, x, ws).run_unchecked(each) for each in (one, np.where(one == 1, value, 1.0)))
    np.testing.assert_array_equal(~np.isfinite(got["dx0"]), touched["dx0"] != 0)


def test_the_moments_behind_a_grouped_convolution_are_those_of_what_it_writes(rng):
    problem = problem_of(3, 16, 16, (9, 7), groups=2)
    memory = Memory()
    x, w = (memory.stored(rng.standard_normal(each.shape), np.float32) for each in (problem.image, problem.filter))
    y, found = (memory.bytes(4 * each.count).view(np.float32) for each in (problem.maps, problem.moments))
    assert run_op(Conv(problem), "forward", {"x0": x, "w0": w, "y0": y, "moments": found}) == 2
    np.testing.assert_array_equal(found.reshape(problem.moments.shape), moments(y.reshape(-1, problem.k)))


@pytest.mark.parametrize(("name", "step"), [("4", "forward"), ("16", "dgrad"), ("4/2", "wgrad"), ("8", "wgrad")])
def test_no_access_to_shared_memory_meets_a_bank_twice(name, step, rng):
    problem, memory = layer_of(*edge_layer(GROUPED[name])).record.problem, Memory()
    tensors = {
        "x0": problem.image,
        "dx0": problem.image,
        "y0": problem.maps,
        "dy0": problem.maps,
        "w0": problem.filter,
        "dw0": problem.filter,
    }
    places = {
        role: memory.stored(rng.standard_normal(tensors[role].shape), np.float32).ctypes.data
        for role in ROLES[step].split()
    }
    places["workspace"] = memory.bytes(2**20).ctypes.data
    launch = next(iter(cuda_kernels.bind(Conv(problem), step, CudaCall(places))))
    use = emulate.load("cuda/grouped.cu", "race").bank_use(
        launch.function, launch.grid, launch.block, Packed(launch.args), launch.shared
    )
    assert use and all(row.wavefronts == row.least for row in use)


# -- parts of a weight gradient ----------------------------------------------------------------------------------------


def given_parts(monkeypatch: pytest.MonkeyPatch, rows_each: int, images_each: int) -> None:
    """For products that are too small to have several."""
    monkeypatch.setattr(grouped, "parts_of", lambda *_: BandParts(rows_each, images_each))


SLICED = 'type: "Convolution" convolution_param { kernel_size: 3 pad: 1 num_output: 8 group: 2 %s }'


@pytest.mark.parametrize(("rows", "images", "way"), [(2, 1, PLAIN), (9, 5, PLAIN), (2, 5, Way("asan"))])
def test_gradients_of_filters_are_those_of_the_whole_batch(rows, images, way, monkeypatch):
    given_parts(monkeypatch, rows, images)
    for each in (1, 3, 4):
        case = sliced(SLICED % ("stride: 2" if each == 3 else ""), [(12, 8, 5, 4)])
        Slices(case, (each,) * (12 // each), overlaid=each == 4, adds=each == 3, way=way).check()


def test_slices_of_blobs_in_16_bits_have_the_bits_of_the_whole_batch(monkeypatch):
    given_parts(monkeypatch, 2, 5)
    Slices(sliced(SLICED % "", [(12, 8, 5, 4)]), (3,) * 4, storage="bf16").check()


def grouped_problem(images: int, channels: int, size: int, each: int, stride: int = 1) -> ConvProblem:
    return problem_of(images, channels, channels, size, stride=stride, groups=channels // each)


def test_parts_keep_multiprocessors_busy_and_are_few():
    found = {}
    for channels, size, each in ((128, 56, 4), (256, 28, 8), (512, 14, 16), (8, 4, 4)):
        its = GroupedWgrad.of(grouped_problem(128 if size > 4 else 2, channels, size, each), None)
        found[each if size > 4 else "small"] = its.rows_each, its.images_each
        parts = its.complete * its.bands
        assert its.workspace_bytes == (parts > 1) * parts * its.problem.filter.nbytes
    assert found == {4: (14, 1), 8: (28, 1), 16: (14, 4), "small": (1, 1)}


def test_parts_follow_from_the_whole_batch_alone():
    whole = GroupedWgrad.of(grouped_problem(128, 512, 14, 16), None)
    for items in (1, 2, 32):
        its = GroupedWgrad.of(grouped_problem(items, 512, 14, 16), BatchSlice(items, items, 128))
        assert (its.rows_each, its.images_each) == (whole.rows_each, whole.images_each)
    assert parts_of(1, 1, 1, 1, 4) == BandParts(1, 1)


# -- tiles -------------------------------------------------------------------------------------------------------------


def launches(problem: ConvProblem) -> list[Launch]:
    wgrad = GroupedWgrad.of(problem, None).launches(0, 0, 0, False, 0)
    return [grouped.fprop(problem, 0, 0, 0), grouped.dgrad(problem, 0, 0, 0), next(wgrad)]


def test_tiles_fit_every_gpu_and_have_few_threads_without_a_strip():
    for size, each, stride in product((4, 7, 14, 28, 32, 56, 300), GROUP_SIZES, STRIDES):
        for launch in launches(grouped_problem(4, 32, size, each, stride)):
            assert launch.shared <= 2**16 and launch.block <= THREADS
    for size, each in ((56, 4), (28, 8), (14, 16)):
        fprop, dgrad, _ = launches(grouped_problem(2, 32, size, each))
        assert fprop.grid == dgrad.grid == (2 * size * size // (7 * 28), 1, 1) and fprop.block == 8 * 28


# -- which kernel computes what ----------------------------------------------------------------------------------------


def modules_of(problem: ConvProblem, precision: str) -> tuple[str, str, str]:
    """Of forward, dgrad and wgrad."""
    found = []
    for step, roles in ROLES.items():
        places = {role: 256 * (i + 1) for i, role in enumerate((*roles.split(), "workspace"))}
        first, *_ = cuda_kernels.bind(Conv(problem), step, CudaCall(places, precision=precision))
        found.append("grouped" if first.module == "grouped" else "engine")
    return found[0], found[1], found[2]


def test_shape_and_precision_choose_the_kernel_and_the_batch_does_not():
    for images in (1, 64):
        for precision in ENGINES:
            for each in (4, 8):
                assert modules_of(grouped_problem(images, 4 * each, 9, each, 2), precision) == ("grouped",) * 3
            of_16 = "grouped" if precision == "fp32" else "engine"
            assert modules_of(grouped_problem(images, 64, 9, 16), precision) == (of_16, of_16, "grouped")
            assert modules_of(grouped_problem(images, 64, 9, 16, 2), precision) == (of_16, "grouped", "grouped")
            assert modules_of(grouped_problem(images, 64, 9, 32), precision) == ("engine",) * 3


def test_other_windows_and_groups_are_products_of_matrices():
    three, by_two = Window(9, 3), Window(9, 3, stride=2)
    for c, k, groups, rows, columns in (
        (8, 16, 2, three, three),
        (12, 12, 2, three, three),
        (4, 4, 1, three, three),
        (8, 8, 2, three, by_two),
        (8, 8, 2, Window(9, 3, stride=3), Window(9, 3, stride=3)),
        (8, 8, 2, three, Window(9, 3, dilation=2)),
        (8, 8, 2, Window(9, 1), Window(9, 1)),
    ):
        assert modules_of(ConvProblem(2, c, k, rows, columns, groups=groups), "tf32") == ("engine",) * 3
