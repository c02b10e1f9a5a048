"""Ops of slices of a batch leave the bits of the whole batch, on emulated kernels."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from layermem.backends.cuda import cuda_kernels
from layermem.backends.cuda.products.gemm_tiles import ENGINES
from layermem.backends.cuda.products.wgrad import SplitK
from layermem.backends.cuda.products.wgrad_slices import WgradSlice, conv_wgrad_carry_bytes, conv_wgrad_open_bytes
from layermem.layers.base import Layer, Step
from layermem.ops import BatchSlice, OpRecord
from layermem.utils.units import aligned
from tests import batch_norm_slices
from tests.backends.cuda.harness import CONTEXT, Way, record_of, run_op
from tests.backends.cuda.slices import SPLITTING, Slices, splits_of
from tests.cases.convolution import conv_text
from tests.cases.slices import NORMS, SLICED, SlicedCase, equal, op_cases, sliced
from tests.layers.harness import steps_of

ON_CUDA = {name: case for name, case in SLICED.items() if "cuda" in case.devices}


def cut(monkeypatch: pytest.MonkeyPatch, images: int) -> None:
    for module in SPLITTING:
        monkeypatch.setattr(module, "split_of", splits_of(images))


def cut_images(monkeypatch: pytest.MonkeyPatch, pieces: int) -> None:
    """Splits of one of so many pieces of each image."""
    for module in SPLITTING:
        monkeypatch.setattr(module, "split_of", lambda problem: SplitK(1, pieces * problem.n, pieces))


def check(case: SlicedCase, adds: bool) -> None:
    for counts in case.counts:
        Slices(case, counts, adds=adds, overlaid=not adds and counts[0] % 2 == 0).check()


@pytest.mark.exhaustive(16)
@pytest.mark.parametrize("adds", [False, True], ids=["written", "added"])
@pytest.mark.parametrize("name, images", [(name, images) for name, case in ON_CUDA.items() for images in case.splits])
def test_gradients_of_filters_are_those_of_the_whole_batch(name, images, adds, monkeypatch):
    cut(monkeypatch, images)
    check(SLICED[name], adds)


@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("adds", [False, True], ids=["written", "added"])
@pytest.mark.parametrize("name", [name for name, case in ON_CUDA.items() if not case.splits])
def test_slices_have_the_bits_of_the_whole_batch(name, adds):
    check(SLICED[name], adds)


@pytest.mark.samples(5)
@pytest.mark.parametrize(
    "case", [*op_cases(4, [(1,) * 4, (2, 2)], cuda_kernels, masks=False)], ids=lambda case: case.op.name
)
def test_every_op_case_gives_the_bits_of_the_whole_batch_in_slices(case):
    """One item alone may lie otherwise than two."""
    check(case, False)


@pytest.mark.samples(2)
@pytest.mark.parametrize("name", ["35 windows", "64 windows"])
def test_slices_have_the_bits_of_images_in_pieces(name, monkeypatch):
    cut_images(monkeypatch, 2)
    for adds in (False, True):
        check(SLICED[name], adds)


@pytest.mark.parametrize(
    "images, each, carried, is_open",
    [
        (12, 3, 1, 0),  # one split: the gradient itself
        (3, 3, 1, 0),  # slices end with splits
        (2, 4, 1, 0),
        (5, 3, 1, 1),
        (4, 2, 1, 1),
    ],
)
def test_slices_carry_the_gradient_and_at_most_one_open_split(images, each, carried, is_open, monkeypatch):
    cut(monkeypatch, images)
    problem = record_of(*convolution("64 windows", each)).problem
    batch_slice = BatchSlice(0, each, 12)
    assert conv_wgrad_carry_bytes(problem) == carried * problem.filter.nbytes
    assert conv_wgrad_open_bytes(problem, batch_slice) == is_open * aligned(problem.filter.nbytes)


def convolution(name: str, images: int) -> tuple[Layer, Step]:
    """A convolution of so many images, and its wgrad."""
    layer = SLICED[name].layer(images)
    return layer, next(step for step in steps_of(layer) if step.step == "wgrad")


def test_windows_of_a_stage_are_carried_only_where_a_slice_ends_within_one(monkeypatch):
    cut(monkeypatch, 16)
    four, many = (record_of(*convolution("4 windows", each)).problem for each in (1, 8))
    assert conv_wgrad_open_bytes(four, BatchSlice(0, 1, 16)) > 0
    assert conv_wgrad_open_bytes(many, BatchSlice(0, 8, 16)) == 0


def test_a_slice_of_one_split_is_one_launch(monkeypatch):
    """The product adds it to what is carried; of several splits sum_parts adds them."""
    cut(monkeypatch, 4)
    problem, batch_slice = record_of(*convolution("64 windows", 4)).problem, BatchSlice(4, 4, 12)
    its = WgradSlice.of(problem, batch_slice)
    assert len(list(its.wgrad(ENGINES["fp32"], 0, 0, 0, False))) == 1 and its.workspace_bytes == 0
    last = WgradSlice.of(problem, BatchSlice(8, 4, 12))
    assert len(list(last.wgrad(ENGINES["fp32"], 0, 0, 0, False))) == 2
    assert last.workspace_bytes == problem.filter.nbytes


@pytest.mark.parametrize("precision", ["fp32x3", "tf32", "bf16"])
def test_tensor_cores_sum_the_stages_of_the_whole_batch(precision, monkeypatch):
    cut(monkeypatch, 4)
    Slices(SLICED["35 windows"], (3,) * 4, way=Way(precision=precision)).check()


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("counts", [(3,) * 4, (1,) * 12])
def test_slices_of_blobs_in_16_bits_sum_the_stages_of_the_whole_batch(counts, precision, monkeypatch):
    """Stages of packed tiles have 64 windows, and the windows that slices leave each other are in tiles of fp32."""
    cut(monkeypatch, 4)
    text = conv_text(16, "kernel_size: 3 bias_term: false")
    Slices(sliced(text, [(12, 8, 7, 9)]), counts, way=Way(precision=precision), storage="bf16").check()


@pytest.mark.samples(2)
@pytest.mark.parametrize("mode", ["asan", "race"])
def test_slices_stay_in_bounds_and_have_no_races(mode, monkeypatch):
    cut(monkeypatch, 4)
    Slices(SLICED["35 windows"], (3,) * 4, way=Way(mode)).check()
    Slices(SLICED["EuclideanLoss: distances of maps"], (1,) * 6, way=Way(mode)).check()


def test_a_filter_of_two_bottoms_has_the_gradients_of_both(monkeypatch):
    cut(monkeypatch, 2)
    text = 'type: "Convolution" top: "a" top: "b" convolution_param { num_output: 4 kernel_size: 2 }'
    Slices(sliced(text, [(4, 3, 5, 4)] * 2), (2, 2), adds=True).check()


@pytest.mark.samples(8)
@pytest.mark.parametrize("seed", range(8))
def test_random_convolutions_over_frames_have_the_gradients_of_the_whole_batch(seed, monkeypatch):
    draw = random.Random(seed)
    axes, groups, items = draw.choice((3, 3, 4)), draw.choice((1, 1, 2, 4)), draw.choice((2, 4, 6))
    channels, outputs = (groups * draw.choice((1, 2, 3, 4)) for _ in range(2))
    sizes = [draw.randint(3, 6) for _ in range(axes)]
    per_axis = {"kernel_size": (1, 3), "pad": (0, 1), "stride": (1, 3)}
    settings = " ".join(f"{name}: {draw.randint(*between)}" for name, between in per_axis.items() for _ in range(axes))
    pairs = draw.choice((1, 1, 2))
    tops = 'top: "a" top: "b"' if pairs == 2 else ""
    kind = draw.choice(("Convolution", "Deconvolution"))
    text = f'type: "{kind}" {tops} convolution_param {{ num_output: {outputs} group: {groups} {settings} }}'
    if draw.random() < 0.7:
        cut(monkeypatch, draw.randint(1, 12))
    case = sliced(text, [(items, channels, *sizes)] * pairs, volumes=True)
    for each in (1, items // 2):
        Slices(case, (each,) * (items // each), adds=draw.random() < 0.5).check()


def test_slices_of_frames_have_the_bits_of_images_in_pieces(monkeypatch):
    cut_images(monkeypatch, 2)
    text = conv_text(4, "kernel_size: 3 kernel_size: 1 kernel_size: 1 pad: 1 pad: 0 pad: 0")
    check(sliced(text, [(4, 4, 3, 7, 9)], equal(4, 1, 2), volumes=True), False)


@pytest.mark.samples(3)
@pytest.mark.parametrize("precision", ["fp32x3", "tf32", "bf16"])
def test_tensor_cores_sum_frames_in_the_order_of_the_whole_batch(precision, monkeypatch):
    cut(monkeypatch, 4)
    case = sliced(conv_text(8, "kernel_size: 3 pad: 1"), [(4, 8, 3, 5, 4)], volumes=True)
    Slices(case, (1,) * 4, way=Way(precision=precision)).check()


@pytest.mark.samples(2)
@pytest.mark.parametrize("mode", ["asan", "race"])
def test_slices_of_frames_stay_in_bounds_and_have_no_races(mode, monkeypatch):
    cut(monkeypatch, 5)
    Slices(SLICED["one axis of frames"], (3, 3), way=Way(mode)).check()


def run_norm(record: OpRecord, step: str, arrays: Mapping[str, np.ndarray], accumulates: Sequence[str]) -> None:
    run_op(record, step, arrays, accumulates=accumulates, context=CONTEXT)


@pytest.mark.parametrize("form", ["alone", "scaled", "relu", "residual"])
@pytest.mark.parametrize("name", [name for name, (_, _, devices) in NORMS.items() if "cuda" in devices])
def test_a_batch_norm_in_two_passes_is_that_of_the_whole_batch(name, form):
    batch_norm_slices.check_form(name, form, run_norm, cuda_kernels.carry_bytes)


@pytest.mark.parametrize("mode", ["asan", "race"])
def test_a_batch_norm_in_two_passes_stays_in_bounds_and_has_no_races(mode):
    def run(record: OpRecord, step: str, arrays: Mapping[str, np.ndarray], accumulates: Sequence[str]) -> None:
        run_op(record, step, arrays, accumulates=accumulates, context=CONTEXT, way=Way(mode))

    record = batch_norm_slices.scaled(batch_norm_slices.norm_of((6, 3, 20, 5)), relu=True)
    batch_norm_slices.check(record, (1, 2, 3), run, cuda_kernels.carry_bytes)
