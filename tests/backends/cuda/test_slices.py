"""Ops of slices of a batch leave the bits of the whole batch, on emulated kernels."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from layermem.backends.cuda import cuda_kernels
from layermem.backends.cuda.products.gemm_tiles import ENGINES
from layermem.backends.cuda.products.wgrad import Split
from layermem.backends.cuda.products.wgrad_slices import WgradSlice, conv_wgrad_carry_bytes, conv_wgrad_open_bytes
from layermem.layers.base import Layer, Step
from layermem.ops import BatchSlice, OpRecord
from layermem.utils.units import aligned
from tests import batch_norm_slices
from tests.backends.cuda.harness import CONTEXT, Way, first_step, layer_of, record_of, run_op
from tests.backends.cuda.slices import SPLITTING, Slices, Volumes, splits_of
from tests.cases import CASES, SLICED, conv_text, edge_layer
from tests.layers.harness import TRAIN, wants_of
from tests.op_case import OpCase


def cut(monkeypatch: pytest.MonkeyPatch, images: int) -> None:
    for module in SPLITTING:
        monkeypatch.setattr(module, "split_of", splits_of(images))


def cut_images(monkeypatch: pytest.MonkeyPatch, pieces: int) -> None:
    """Splits of one of so many pieces of each image."""
    for module in SPLITTING:
        monkeypatch.setattr(module, "split_of", lambda problem: Split(1, pieces * problem.n, pieces))


SPLITS = (
    2,
    4,
    5,
    7,
    12,
)  # images of each: slices end at splits, within them, and one exchanges an open split for another


@pytest.mark.exhaustive(12)
@pytest.mark.parametrize("images", SPLITS)
@pytest.mark.parametrize("kind", ["Convolution", "Deconvolution"])
@pytest.mark.parametrize("name", SLICED)
def test_gradients_of_filters_are_those_of_the_whole_batch(name, kind, images, monkeypatch):
    settings, outputs, shape = SLICED[name]
    cut(monkeypatch, images)
    for each in (1, 2, 3, 4, 6):
        Slices(conv_text(outputs, settings, kind), [shape], (each,) * (12 // each), overlaid=each % 2 == 0).check()


@pytest.mark.samples(2)
@pytest.mark.parametrize(("name", "pieces"), [("35 windows", 2), ("64 windows", 2)])
def test_slices_have_the_bits_of_images_in_pieces(name, pieces, monkeypatch):
    text, shape = edge_layer(SLICED[name])
    cut_images(monkeypatch, pieces)
    for each in (1, 2, 3, 6):
        for adds in (False, True):
            Slices(text, [shape], (each,) * (12 // each), adds=adds, overlaid=not adds).check()


@pytest.mark.samples(2)
@pytest.mark.parametrize("images", SPLITS)
def test_gradients_are_added_when_they_are_complete(images, monkeypatch):
    text, shape = edge_layer(SLICED["35 windows"])
    cut(monkeypatch, images)
    for each in (2, 3, 4):
        Slices(text, [shape], (each,) * (12 // each), adds=True).check()


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
    text, (_, *shape) = edge_layer(SLICED[name])
    layer = layer_of(text, (images, *shape))
    return layer, next(step for step in layer.backward(wants_of(layer)) if step.step == "wgrad")


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
    text, shape = edge_layer(SLICED["35 windows"], more="bias_term: false")
    cut(monkeypatch, 4)
    Slices(text, [shape], (3,) * 4, way=Way(precision=precision)).check()


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("counts", [(3,) * 4, (1,) * 12])
def test_slices_of_blobs_in_16_bits_sum_the_stages_of_the_whole_batch(counts, precision, monkeypatch):
    """Stages of packed tiles have 64 windows, and the windows that slices leave each other are in tiles of fp32."""
    cut(monkeypatch, 4)
    text = conv_text(16, "kernel_size: 3 bias_term: false")
    Slices(text, [(12, 8, 7, 9)], counts, way=Way(precision=precision), storage="bf16").check()


@pytest.mark.samples(2)
@pytest.mark.parametrize("mode", ["asan", "race"])
def test_slices_stay_in_bounds_and_have_no_races(mode, monkeypatch):
    text, shape = edge_layer(SLICED["35 windows"])
    cut(monkeypatch, 4)
    Slices(text, [shape], (3,) * 4, way=Way(mode)).check()
    Slices('type: "EuclideanLoss"', [(6, 900), (6, 900)], (1,) * 6, way=Way(mode)).check()


def test_a_filter_of_two_bottoms_has_the_gradients_of_both(monkeypatch):
    cut(monkeypatch, 2)
    text = 'type: "Convolution" top: "a" top: "b" convolution_param { num_output: 4 kernel_size: 2 }'
    Slices(text, [(4, 3, 5, 4)] * 2, (2, 2), adds=True).check()


VOLUMES = {
    "one axis of frames": ("num_output: 6 kernel_size: 3 pad: 1 group: 2", (6, 4, 3, 5, 4)),
    "strides and gaps": ("num_output: 4 kernel_size: 2 stride: 2 dilation: 2 pad: 1", (6, 8, 5, 7, 6)),
    "a group a channel": ("num_output: 4 kernel_size: 2 group: 4", (6, 4, 3, 4, 3)),
    "mixed width": ("num_output: 4 kernel_size: 3 pad: 1 stride: 2", (6, 3, 3, 5, 4)),
    "one tap": ("num_output: 5 kernel_size: 1 kernel_size: 3 kernel_size: 2", (6, 3, 3, 4, 5)),
    "one frame": ("num_output: 4 kernel_size: 2", (6, 4, 2, 5, 5)),
    "frames in the pad alone": ("num_output: 4 kernel_size: 2 pad: 3 pad: 0 pad: 1 stride: 2", (6, 2, 2, 3, 3)),
    "no tap reaches some, anywhere in memory": ("num_output: 1 kernel_size: 1 pad: 2 pad: 0 pad: 0", (6, 1, 3, 3, 3)),
    "a bias in parts that end within items": ("num_output: 40 kernel_size: 1", (6, 1, 2, 10, 9)),
    "two axes of frames": ("num_output: 3 kernel_size: 2 pad: 1 stride: 2", (6, 4, 4, 3, 3, 4)),
}
VOLUMES_OF_KINDS = [
    *((name, "Convolution") for name in VOLUMES),
    *((name, "Deconvolution") for name in VOLUMES if " pad: 0" not in VOLUMES[name][0]),
]


@pytest.mark.exhaustive(8)
@pytest.mark.parametrize("images", [0, 5, 6])  # of a split; 0: one split
@pytest.mark.parametrize("name, kind", VOLUMES_OF_KINDS)
def test_gradients_of_filters_over_frames_are_those_of_the_whole_batch(name, kind, images, monkeypatch):
    settings, shape = VOLUMES[name]
    cut(monkeypatch, images or 1 << 20)
    for each in (1, 2, 3):
        text = f'type: "{kind}" convolution_param {{ {settings} }}'
        Volumes(text, [shape], (each,) * (6 // each), adds=each == 2).check()


@pytest.mark.samples(4)
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
    for each in (1, items // 2):
        Volumes(text, [(items, channels, *sizes)] * pairs, (each,) * (items // each), adds=draw.random() < 0.5).check()


def test_slices_of_frames_have_the_bits_of_images_in_pieces(monkeypatch):
    cut_images(monkeypatch, 2)
    text = conv_text(4, "kernel_size: 3 kernel_size: 1 kernel_size: 1 pad: 1 pad: 0 pad: 0")
    for each in (1, 2):
        Volumes(text, [(4, 4, 3, 7, 9)], (each,) * (4 // each)).check()


@pytest.mark.parametrize("precision", ["fp32x3", "tf32", "bf16"])
def test_tensor_cores_sum_frames_in_the_order_of_the_whole_batch(precision, monkeypatch):
    cut(monkeypatch, 4)
    text = conv_text(8, "kernel_size: 3 pad: 1")
    Volumes(text, [(4, 8, 3, 5, 4)], (1,) * 4, way=Way(precision=precision)).check()


@pytest.mark.samples(2)
@pytest.mark.parametrize("mode", ["asan", "race"])
def test_slices_of_frames_stay_in_bounds_and_have_no_races(mode, monkeypatch):
    cut(monkeypatch, 5)
    settings, shape = VOLUMES["one axis of frames"]
    Volumes(f'type: "Convolution" convolution_param {{ {settings} }}', [shape], (3, 3), way=Way(mode)).check()


@pytest.mark.parametrize("transpose", ["true", "false"])
@pytest.mark.parametrize("shape, axis", [((40, 12), 1), ((6, 3, 4, 2), 1), ((6, 7, 9), 2)])
def test_gradients_of_inner_products_are_those_of_the_whole_batch(shape, axis, transpose):
    text = f'type: "InnerProduct" inner_product_param {{ num_output: 5 axis: {axis} transpose: {transpose} }}'
    for counts in ((shape[0] // 2,) * 2, (1,) * shape[0], (2,) * (shape[0] // 2)):
        Slices(text, [shape], counts, adds=counts[0] == 1).check()


def labels(shape: tuple[int, ...], classes: int) -> np.ndarray:
    return np.random.default_rng(3).integers(0, classes, shape).astype(np.float32)


@pytest.mark.samples(2)
@pytest.mark.parametrize("settings", ["", "loss_param { ignore_label: 1 }", "loss_param { normalization: FULL }"])
@pytest.mark.parametrize("shape, of_labels", [((300, 3), (300,)), ((6, 3, 20, 30), (6, 20, 30))])
def test_the_softmax_loss_is_that_of_the_whole_batch(shape, of_labels, settings):
    text = f'type: "SoftmaxWithLoss" {settings}'
    for counts in ((shape[0] // 2,) * 2, (shape[0] // 6,) * 6):
        Slices(text, [shape, of_labels], counts, {1: labels(of_labels, 3)}, ["x1"]).check()


@pytest.mark.parametrize("shape", [(6, 3, 5, 3), (6, 4)])
def test_random_numbers_are_those_of_the_whole_batch(shape):
    for counts in ((3, 3), (1,) * 6):
        Slices('type: "Dropout"', [shape], counts).check()
        Slices(
            'type: "Pooling" pooling_param { pool: STOCHASTIC kernel_size: 1 }', [(*shape, 1, 1)[:4]], counts
        ).check()


def test_slices_that_are_not_aligned_to_16_bytes_are_computed_element_by_element():
    for text, bottoms in (('type: "AbsVal"', 1), ('type: "Eltwise"', 2), ('type: "TanH"', 1)):
        Slices(text, [(6, 3, 5, 3)] * bottoms, (1,) * 6).check()


@pytest.mark.parametrize(
    "text, shape",
    [
        ('type: "PReLU"', (6, 3, 15, 9)),
        ('type: "PReLU" prelu_param { channel_shared: true }', (6, 700)),
        ('type: "Scale" scale_param { bias_term: true }', (6, 8, 20, 5)),
        ('type: "Scale" scale_param { bias_term: true }', (6, 3, 700)),
        ('type: "Bias"', (6, 70)),
        ('type: "Normalize" norm_param { across_spatial: false channel_shared: false }', (6, 5, 25, 16)),
    ],
)
def test_gradients_of_scales_are_those_of_the_whole_batch(text, shape):
    for counts in ((3, 3), (1,) * 6):
        Slices(text, [shape], counts, adds=len(counts) == 2).check()


def test_the_gradient_of_a_scale_by_item_takes_the_parts_of_the_whole_batch():
    Slices('type: "Scale" scale_param { axis: 0 }', [(300, 5000), (300,)], (150, 150)).check()


def sliceable() -> Iterator[OpCase]:
    """Cases of tests/cases that slices compute, of four items; masks of bits do not begin with an item."""
    for case in CASES.values():
        of_four = case.of_items(4)
        if of_four is None or case.normalized or case.residual or case.relu or case.saved or case.phase != TRAIN:
            continue
        layer, batch_slice = of_four.layer(), BatchSlice(0, 1, 4)
        wants = wants_of(layer)
        steps = [first_step(layer, wants), *layer.backward(wants)]
        sums = [(record_of(layer, step), step, record_of(layer, step).over_items(step.step)) for step in steps]
        if any("mask" in step.writes or along.refusal for _, step, along in sums) or any(
            cuda_kernels.carry_bytes(replace(record, batch_slice=batch_slice), step.step, role) is None
            for record, step, along in sums
            for role in along.sums & set(step.writes)
        ):
            continue
        if all(cuda_kernels.implements(record, step.step) for record, step, _ in sums):
            yield of_four


@pytest.mark.samples(3)
@pytest.mark.parametrize("case", [*sliceable()], ids=lambda case: case.name)
def test_every_op_case_gives_the_bits_of_the_whole_batch_in_slices(case):
    """One item alone may lie otherwise than two.  All slices of a step have as many."""
    layer = case.layer()
    xs, ws = case.inputs(layer, np.random.default_rng(2))
    step = first_step(layer, wants_of(layer))
    whole = record_of(layer, step).over_items(step.step).counted
    for counts in ((1,) * 4, (2, 2)):
        Slices(case.text, case.shapes("medium"), counts, dict(enumerate(xs)), whole, weights=ws).check()


@pytest.mark.parametrize("adds", [False, True])
def test_the_gradient_of_a_table_is_that_of_the_whole_batch(adds):
    text = 'type: "Embed" embed_param { input_dim: 5 num_output: 6 }'
    Slices(text, [(8, 40)], (4, 4), {0: labels((8, 40), 5)}, adds=adds).check()


LOSSES = [
    ('type: "EuclideanLoss"', [(6, 3, 20, 15), (6, 900)], None),
    ('type: "SmoothL1Loss"', [(6, 700), (6, 700)], None),
    ('type: "SigmoidCrossEntropyLoss" loss_param { ignore_label: 1 normalization: VALID }', [(6, 700), (6, 700)], 2),
    ('type: "HingeLoss"', [(6, 700), (6,)], 700),
    ('type: "MultinomialLogisticLoss"', [(6, 4), (6,)], 4),
    ('type: "ContrastiveLoss"', [(6, 5), (6, 5), (6,)], 2),
    ('type: "InfogainLoss" loss_param { ignore_label: 1 }', [(6, 3), (6,), (1, 1, 3, 3)], 3),
]


@pytest.mark.parametrize("text, shapes, classes", LOSSES, ids=lambda value: value if isinstance(value, str) else "")
def test_losses_are_those_of_the_whole_batch(text, shapes, classes):
    last = max(i for i, shape in enumerate(shapes) if shape[0] == 6)
    values = {last: labels(shapes[last], classes)} if classes else {}
    if "Multinomial" in text:
        values[0] = np.random.default_rng(4).random(shapes[0])
    for counts in ((3, 3), (1,) * 6):
        Slices(text, shapes, counts, values, ["x1"] if "ignore" in text else []).check()


BATCH_NORMS = [  # channels read four at a time, one at a time, and before their pixels; several parts, or one
    ((6, 8, 20, 5), (3, 3)),
    ((6, 8, 20, 5), (1, 2, 3)),
    ((5, 3, 9, 7), (1,) * 5),
    ((6, 3, 700), (3, 3)),
    ((6, 3, 700), (1,) * 6),
    ((40, 70), (1, 39)),
    ((8, 4, 60, 40), (2,) * 4),
]


def run_norm(record: OpRecord, step: str, arrays: Mapping[str, np.ndarray], accumulates: Sequence[str]) -> None:
    run_op(record, step, arrays, accumulates=accumulates, context=CONTEXT)


@pytest.mark.parametrize("form", ["alone", "scaled", "relu", "residual"])
@pytest.mark.parametrize(("shape", "counts"), BATCH_NORMS)
def test_a_batch_norm_in_two_passes_is_that_of_the_whole_batch(shape, counts, form):
    norm = batch_norm_slices.norm_of(shape)
    record = batch_norm_slices.scaled(norm, relu=form == "relu", residual=form == "residual")
    batch_norm_slices.check(
        norm if form == "alone" else record, counts, run_norm, cuda_kernels.carry_bytes, adds=form == "relu"
    )


@pytest.mark.parametrize("mode", ["asan", "race"])
def test_a_batch_norm_in_two_passes_stays_in_bounds_and_has_no_races(mode):
    def run(record: OpRecord, step: str, arrays: Mapping[str, np.ndarray], accumulates: Sequence[str]) -> None:
        run_op(record, step, arrays, accumulates=accumulates, context=CONTEXT, way=Way(mode))

    record = batch_norm_slices.scaled(batch_norm_slices.norm_of((6, 3, 20, 5)), relu=True)
    batch_norm_slices.check(record, (1, 2, 3), run, cuda_kernels.carry_bytes)
