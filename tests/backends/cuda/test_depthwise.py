"""Depthwise convolutions: kernels of their own, over many windows, and the parts of their weight gradients."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from layermem.backends.cuda import cuda_kernels
from layermem.backends.cuda.base import CudaCall
from layermem.backends.cuda.products import depthwise
from layermem.backends.cuda.products.depthwise import DepthwiseWgrad, form_of
from layermem.backends.cuda.products.direct_problems import is_depthwise
from layermem.backends.cuda.support.launch import THREADS, Launch
from layermem.ops import NARROW, BatchSlice, Conv, ConvProblem, Window
from tests.backends.cuda.conv_moments import moments
from tests.backends.cuda.harness import PLAIN, Case, Memory, Way, layer_of, run_op
from tests.backends.cuda.slices import Slices
from tests.backends.cuda.strict import BOUNDS_AT_LEAST
from tests.backends.cuda.test_narrow_kernels import check as check_narrow
from tests.cases.convolution import (
    DECONVOLUTION_PARTS,
    DEPTHWISE,
    DEPTHWISE_PARTS,
    PRECISION_BOUNDS,
    SLICED_DEPTHWISE,
    conv_case,
    edge_layer,
)
from tests.cases.fused import problem_of
from tests.cases.net_layers import depthwise_problem, net_layer
from tests.cases.slices import sliced

LONG_SUMS = {"dw0": 1e-5, "dw1": 1e-5}


def drawn(name: str, kind: str, way: Way = PLAIN) -> Case:
    """A layer of DEPTHWISE on random operands."""
    text, shape = edge_layer(DEPTHWISE[name], kind)
    layer = layer_of(text, shape)
    assert is_depthwise(layer.record.problem)
    rng = np.random.default_rng(17)
    ws = [rng.standard_normal(param.tensor.shape) for param in layer.params]
    return Case(layer, [rng.standard_normal(shape)], ws, way, LONG_SUMS, rng=rng)


KINDS = [
    (name, kind)
    for name, kind in product(DEPTHWISE, ("Convolution", "Deconvolution"))
    if kind == "Convolution" or "wide pad" not in name  # of which nothing would be left
]


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_depthwise_convolutions_agree_with_sums_in_double_precision(name, kind):
    drawn(name, kind).check()


@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("way", BOUNDS_AT_LEAST, ids=lambda way: way.mode)
@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_depthwise_convolutions_stay_in_bounds_and_have_no_races(name, kind, way):
    drawn(name, kind, way).check_once()


@pytest.mark.parametrize("name", ["3x3", "5x5/2", "dilated", "two outputs a group"])
def test_no_precision_changes_a_bit(name):
    want = drawn(name, "Convolution").check_once()
    for precision in PRECISION_BOUNDS:
        got = drawn(name, "Convolution", Way(precision=precision)).check_once()
        for role in ("y0", "dx0", "dw0", "dw1"):
            np.testing.assert_array_equal(got[role], want[role], err_msg=f"{role} in {precision}")


@pytest.mark.parametrize("precision", ["fp32", "fp32x3", "bf16"])
@pytest.mark.parametrize("word", NARROW)
@pytest.mark.parametrize("name", ["3x3", "3x3/2", "5x5", "5x5/2", "dilated", "odd channels", "two outputs a group"])
def test_kernels_in_16_bits_have_the_bits_of_converted_operands_in_every_precision(name, word, precision):
    assert check_narrow(conv_case(DEPTHWISE[name]), word, Way(precision=precision)) == 3


def test_a_nan_reaches_what_reads_it_and_nothing_else():
    for name in ("3x3", "3x3/2", "5x5", "5x5/2", "dilated", "odd channels"):
        text, shape = edge_layer(DEPTHWISE[name], more="bias_term: false")
        layer = layer_of(text, shape)
        ws, dy = [np.ones(layer.params[0].tensor.shape)], np.ones(layer.tops[0].shape)
        for place in ((0, 0, 0, 0), (1, 3, shape[2] - 1, shape[3] - 1)):
            one = np.zeros(shape)
            one[place] = 1
            touched = Case(layer, [one], ws).run_unchecked(dy)
            got = Case(layer, [np.where(one == 1, np.nan, 1.0)], ws).run_unchecked(dy)
            for role in ("y0", "dw0"):
                np.testing.assert_array_equal(np.isnan(got[role]), touched[role] != 0, err_msg=f"{role} of {name}")


def test_the_moments_behind_a_depthwise_convolution_are_those_of_what_it_writes(rng):
    problem = problem_of(3, 8, 8, (9, 7), groups=8)
    memory = Memory()
    x, w = (memory.stored(rng.standard_normal(each.shape), np.float32) for each in (problem.image, problem.filter))
    y, found = (memory.bytes(4 * each.count).view(np.float32) for each in (problem.maps, problem.moments))
    assert run_op(Conv(problem), "forward", {"x0": x, "w0": w, "y0": y, "moments": found}) == 2
    np.testing.assert_array_equal(found.reshape(problem.moments.shape), moments(y.reshape(-1, problem.k)))


# -- parts of a weight gradient ----------------------------------------------------------------------------------------


def parts_of(monkeypatch: pytest.MonkeyPatch, images_each: int, rows_each: int) -> None:
    """Groups and bands of so many, for products that are too small to have several."""
    monkeypatch.setattr(DepthwiseWgrad, "images_each", images_each)
    monkeypatch.setattr(DepthwiseWgrad, "rows_each", rows_each)


@pytest.mark.exhaustive(6)
@pytest.mark.parametrize(
    ("kind", "images", "rows"),
    [
        *(("Convolution", *parts) for parts in DEPTHWISE_PARTS),
        *(("Deconvolution", *parts) for parts in DECONVOLUTION_PARTS),
    ],
)
@pytest.mark.parametrize("name", SLICED_DEPTHWISE)
def test_gradients_of_filters_are_those_of_the_whole_batch(name, kind, images, rows, monkeypatch):
    text, shape = edge_layer(SLICED_DEPTHWISE[name], kind)
    parts_of(monkeypatch, images, rows)
    for each in (1, 2, 3, 4, 6):
        Slices(sliced(text, [shape]), (each,) * (12 // each), overlaid=each % 2 == 0, adds=each == 3).check()


@pytest.mark.parametrize("mode", ["asan", "race"])
def test_slices_stay_in_bounds_and_have_no_races(mode, monkeypatch):
    parts_of(monkeypatch, 5, 2)
    for name in ("3x3", "any"):
        text, shape = edge_layer(SLICED_DEPTHWISE[name])
        for each in (1, 3, 4):
            Slices(sliced(text, [shape]), (each,) * (12 // each), way=Way(mode)).check()


@pytest.mark.parametrize("storage", NARROW)
def test_slices_of_blobs_in_16_bits_have_the_bits_of_the_whole_batch(storage, monkeypatch):
    parts_of(monkeypatch, 5, 2)
    text, shape = edge_layer(SLICED_DEPTHWISE["3x3"])
    Slices(sliced(text, [shape]), (3,) * 4, storage=storage).check()


def test_a_filter_of_two_bottoms_has_the_gradients_of_both(monkeypatch):
    parts_of(monkeypatch, 2, 2)
    text = 'type: "Convolution" top: "a" top: "b" convolution_param { num_output: 4 kernel_size: 2 group: 4 }'
    Slices(sliced(text, [(4, 4, 5, 4)] * 2), (2, 2), adds=True).check()
    Slices(sliced(text, [(4, 4, 5, 4)] * 2), (1,) * 4).check()


@pytest.mark.parametrize(
    "problem, warps, bands, images_each",
    [
        (net_layer("MobileNet conv2_1/dw", 128), 4, 6, 1),
        (net_layer("MobileNet conv3_1/dw", 128), 4, 1, 1),
        (net_layer("MobileNet conv5_1/dw", 128), 4, 1, 5),
        (net_layer("MobileNet conv6/dw", 128), 1, 1, 3),
        (depthwise_problem(2, 8, 3), 1, 1, 1),
    ],
)
def test_parts_keep_multiprocessors_busy_and_are_few(problem, warps, bands, images_each):
    its = DepthwiseWgrad.of(problem, None)
    assert (its.warps, its.bands, its.images_each) == (warps, bands, images_each)
    parts = its.complete * its.bands
    assert its.workspace_bytes == (parts > 1) * parts * problem.filter.nbytes


def test_parts_follow_from_the_whole_batch_alone():
    whole = DepthwiseWgrad.of(net_layer("MobileNet conv5_1/dw", 128), None)
    for items in (1, 2, 32):
        its = DepthwiseWgrad.of(net_layer("MobileNet conv5_1/dw", items), BatchSlice(items, items, 128))
        assert (its.warps, its.rows_each, its.images_each) == (whole.warps, whole.rows_each, whole.images_each)


def test_slices_carry_the_gradient_and_what_they_leave_of_one_group(monkeypatch):
    parts_of(monkeypatch, 4, 2)  # three bands of five rows
    for each, is_open in ((4, False), (2, True), (12, False)):
        problem = ConvProblem(each, 64, 64, Window(5, 1), Window(5, 1), groups=64)
        its = DepthwiseWgrad.of(problem, BatchSlice(0, each, 12))
        assert its.carry_bytes == (1 + 3 * is_open) * problem.filter.nbytes


# -- which kernel computes what ----------------------------------------------------------------------------------------


def test_channels_and_windows_choose_the_kernel():
    def name(c: int, k: int, rows: Window, columns: Window) -> str:
        return form_of(ConvProblem(2, c, k, rows, columns, groups=c)).name

    three = Window(9, 3, pad=1)
    assert name(8, 8, three, three) == "3x3_s1"
    assert name(8, 8, Window(9, 5, stride=2), Window(7, 5, stride=2)) == "5x5_s2"
    assert name(8, 8, three, Window(9, 3, pad=1, stride=2)) == "v4"
    assert name(8, 8, Window(9, 3, dilation=2), Window(9, 3, dilation=2)) == "v4"
    assert name(6, 6, three, three) == name(8, 16, three, three) == "v1"


def launched(problem: ConvProblem) -> list[Launch]:
    call = CudaCall({role: 256 * (i + 1) for i, role in enumerate(("x0", "w0", "y0"))})
    return list(cuda_kernels.bind(Conv(problem), "forward", call))


def test_a_group_of_several_inputs_or_of_many_outputs_is_a_product_of_matrices():
    window = Window(9, 3)
    for c, k, groups, module in (
        (8, 8, 8, "depthwise"),
        (8, 32, 8, "depthwise"),
        (8, 40, 8, "convolution"),
        (8, 8, 4, "convolution"),
        (1, 4, 1, "convolution"),
    ):
        (launch,) = launched(ConvProblem(2, c, k, window, window, groups=groups))
        assert launch.module == module


def test_the_batch_changes_no_strip_of_an_image():
    """So no image depends on how many are computed with it."""
    for images in (1, 2, 64):
        (launch,) = launched(depthwise_problem(images, 64, 14))
        assert launch.function == "depthwise_fprop_3x3_s1"
        assert launch.grid == (2 * -(-images * 7 * 4 // depthwise.FORMS[3, 1].strips(THREADS)), 1, 1)
