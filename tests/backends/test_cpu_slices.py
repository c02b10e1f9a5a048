"""Ops of slices of a batch on the cpu device: all slices together give the bits of the whole batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest

from layermem._native import cpu
from layermem.backends.cpu.base import CpuCall, cpu_kernels
from layermem.backends.cpu.launch import query
from layermem.errors import LayermemError
from layermem.layers.base import Layer, Step
from layermem.layers.images import image_shape
from layermem.ops import CARRY, BatchSlice, OpRecord, Tensor
from tests import batch_norm_slices
from tests.cases import CASES
from tests.layers.harness import TRAIN, Run, layer_of, wants_of
from tests.op_case import OpCase

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """A layer over bottoms of `items` items of these shapes, run in slices of `counts` items."""

    text: str
    shapes: Sequence[tuple[int, ...]]
    items: int
    counts: Sequence[Sequence[int]]
    labels: dict[int, int] | None = None  # bottoms that hold labels, with the number of classes
    phase: int = TRAIN
    drawn: OpCase | None = None  # draws the bottoms and parameters

    def layer(self, items: int) -> Layer:
        return layer_of(self.text, *((items, *shape) for shape in self.shapes), phase=self.phase)


def conv(c: int, hw: int, k: int, kernel: int, more: str = "", kind: str = "Convolution", items: int = 7) -> Case:
    text = f'type: "{kind}" convolution_param {{ num_output: {k} kernel_size: {kernel} {more} }}'
    return Case(text, [(c, hw, hw)], items, [(3, 4), (1,) * 7, (5, 1, 1)] if items == 7 else [(1,) * items])


class Volumes(Case):
    """A convolution over items of the shape [C, frames, H, W], in the memory of images, frame by frame."""

    def layer(self, items: int) -> Layer:
        shape = (items, *self.shapes[0])
        dims = " ".join(f"dim: {size}" for size in shape)
        return layer_of(f"{self.text} input_param {{ shape {{ {dims} }} }}", image_shape(shape, 1), phase=self.phase)


def conv_nd(shape: tuple[int, ...], k: int, settings: str, kind: str = "Convolution") -> Volumes:
    text = f'type: "{kind}" convolution_param {{ num_output: {k} {settings} }}'
    return Volumes(text, [shape], 5, [(2, 3), (1,) * 5])


def inner_product(shape: tuple[int, ...], k: int, items: int, counts: Sequence[Sequence[int]], more: str = "") -> Case:
    return Case(f'type: "InnerProduct" inner_product_param {{ num_output: {k} {more} }}', [shape], items, counts)


# Names describe the kernel of the whole batch; the kernel of a slice alone would often differ.
SUMS = {
    "copies of parts": conv(12, 20, 24, 3, "pad: 1"),
    "copies of parts, strided": conv(12, 25, 24, 3, "stride: 2 pad: 1"),
    "copies with lanes over outputs": conv(3, 21, 20, 5, "pad: 2"),
    "gradient itself": conv(160, 5, 70, 1),
    "gradient itself, dilated": conv(40, 7, 40, 3, "dilation: 2 pad: 2"),
    "cut along input channels": conv(530, 9, 70, 3, "stride: 2 pad: 1", items=3),
    "tiles of two by two": conv(33, 8, 40, 3, "pad: 1"),
    "tiles of four by four": conv(36, 12, 33, 3, "pad: 1"),
    "tiles of four by four, wide groups": conv(72, 13, 80, 3, "pad: 1 group: 2"),
    "tiles of four by four, weights in parts": conv(192, 12, 192, 3, "pad: 1", items=6),
    "groups": conv(24, 11, 36, 3, "pad: 1 group: 2"),
    "groups of one": conv(36, 14, 36, 3, "pad: 1 group: 36"),
    "deconvolution": conv(24, 9, 12, 4, "stride: 2 pad: 1", "Deconvolution"),
    "deconvolution by tiles": conv(34, 12, 33, 3, "pad: 1", "Deconvolution"),
    "volumes: copies of parts": conv_nd((12, 4, 10, 11), 24, "kernel_size: 3 pad: 1"),
    "volumes: copies of parts, strided": conv_nd((12, 5, 13, 11), 24, "kernel_size: 3 pad: 1 stride: 2"),
    "volumes: lanes over outputs": conv_nd((3, 4, 11, 12), 20, "kernel_size: 3 pad: 1 stride: 2"),
    "volumes: gradient itself": conv_nd((160, 3, 3, 4), 70, "kernel_size: 1"),
    "volumes: gradient itself, with pads": conv_nd((160, 2, 5, 4), 70, "kernel_size: 2 pad: 1 dilation: 2"),
    "volumes: frames in the pad alone": conv_nd((3, 2, 5, 4), 5, "kernel_size: 2 pad: 3 pad: 0 pad: 1 stride: 2"),
    "volumes: tiles of two by two": conv_nd((33, 3, 6, 5), 40, "kernel_size: 3 pad: 1"),
    "volumes: tiles of four by four": conv_nd(
        (36, 4, 12, 12), 33, "kernel_size: 3 pad: 1 stride: 2 stride: 1 stride: 1"
    ),
    "volumes: groups of one": conv_nd((36, 3, 9, 9), 36, "kernel_size: 3 pad: 1 group: 36"),
    "volumes: deconvolution": conv_nd((24, 3, 5, 4), 12, "kernel_size: 4 stride: 2 pad: 1", "Deconvolution"),
    "volumes: deconvolution by tiles": conv_nd((34, 2, 12, 12), 33, "kernel_size: 3 pad: 1", "Deconvolution"),
    "volumes: four axes": conv_nd((6, 4, 3, 7, 5), 9, "kernel_size: 2 pad: 1 stride: 2"),
    "few rows": inner_product((5, 3, 3), 30, 7, [(3, 4), (1,) * 7]),
    "many rows": inner_product((20,), 130, 1100, [(513, 587), (100, 700, 300)]),
    "many rows, transposed": inner_product((20,), 130, 1100, [(100, 1000)], "transpose: true"),
    "rows within items": inner_product((9, 40), 33, 64, [(30, 34), (1, 62, 1)], "axis: 2"),
    "channels": Case('type: "Scale" scale_param { bias_term: true }', [(70, 13, 11)], 7, [(3, 4), (1,) * 7]),
    "channels before pixels": Case('type: "Scale" scale_param { bias_term: true }', [(70, 99)], 7, [(3, 4), (1,) * 7]),
    "channels of rows": Case('type: "Bias"', [(70,)], 150, [(30, 120), (60, 4, 86)]),
    "channels and pixels": Case('type: "Scale" scale_param { num_axes: 3 }', [(6, 5, 4)], 150, [(30, 120)]),
    "one factor": Case('type: "Scale" scale_param { num_axes: 0 axis: 0 }', [(6, 15, 14)], 7, [(3, 4)]),
    "slopes": Case('type: "PReLU"', [(70, 13, 11)], 7, [(3, 4), (1,) * 7]),
    "lengths of pixels": Case('type: "Normalize"', [(70, 13, 11)], 7, [(3, 4), (1,) * 7]),
    "lengths of items, one scale": Case(
        'type: "Normalize" norm_param { across_spatial: true channel_shared: true }',
        [(70, 13, 11)],
        7,
        [(3, 4), (1,) * 7],
    ),
    "rows of a table": Case(
        'type: "Embed" embed_param { num_output: 9 input_dim: 5 }', [(30,)], 7, [(3, 4), (1,) * 7], {0: 5}
    ),
}


def loss(
    kind: str,
    shapes: Sequence[tuple[int, ...]],
    items: int,
    counts: Sequence[Sequence[int]],
    more: str = "",
    classes: int = 0,
) -> Case:
    return Case(f'type: "{kind}" {more}', shapes, items, counts, {1: classes} if classes else None)


VALID = "loss_param { ignore_label: 1 normalization: VALID }"
LOSSES = {
    "rows": loss("SoftmaxWithLoss", [(1000,), ()], 21, [(10, 11), (1, 3, 17)], classes=1000),
    "short rows": loss("SoftmaxWithLoss", [(10,), ()], 1700, [(2, 1, 1697), (900, 800)], VALID, 10),
    "pixels": loss("SoftmaxWithLoss", [(21, 15, 17), (1, 15, 17)], 5, [(1,) * 5, (4, 1)], VALID, 21),
    "across": loss("SoftmaxWithLoss", [(5, 50), (50,)], 5, [(2, 3)], "loss_param { normalization: FULL }", 5),
    "targets": loss("SigmoidCrossEntropyLoss", [(2999,), (2999,)], 9, [(1,) * 9, (4, 5)], VALID, 2),
    "distances": loss("EuclideanLoss", [(2999,), (2999,)], 9, [(1,) * 9, (4, 5)]),
    "weighted distances": loss("SmoothL1Loss", [(2999,)] * 4, 9, [(1,) * 9, (4, 5)]),
    "pairs": Case('type: "ContrastiveLoss"', [(1000,), (1000,), ()], 19, [(10, 9), (1, 18)], {2: 2}),
    "hinges": loss("HingeLoss", [(10, 30, 7), ()], 9, [(1,) * 9, (5, 4)], "hinge_loss_param { norm: L2 }", 2100),
    "shares": loss("MultinomialLogisticLoss", [(700,), ()], 25, [(12, 13), (3, 1, 21)], classes=700),
}

ITEMS = {
    "dropout": Case('type: "Dropout"', [(37, 3)], 6, [(1, 2, 3), (1,) * 6]),
    "stochastic pooling": Case(
        'type: "Pooling" pooling_param { pool: STOCHASTIC kernel_size: 2 stride: 2 }', [(5, 7, 7)], 6, [(1, 2, 3)]
    ),
    "max pooling": Case('type: "Pooling" pooling_param { kernel_size: 3 stride: 2 }', [(5, 9, 9)], 4, [(1, 3)]),
    "normalization across": Case('type: "LRN"', [(20, 5, 5)], 4, [(1, 3)]),
    "normalization within": Case(
        'type: "LRN" lrn_param { norm_region: WITHIN_CHANNEL local_size: 3 }', [(6, 9, 9)], 4, [(1, 3)]
    ),
    "softmax of short rows": Case('type: "Softmax"', [(10,)], 20, [(1, 19), (10, 10)]),
    "softmax of rows": Case('type: "Softmax"', [(100,)], 20, [(1, 19)]),
    "relu": Case('type: "ReLU"', [(5, 9, 9)], 4, [(1, 3)]),
    "products": Case('type: "Scale" scale_param { axis: 0 }', [(6, 15, 14)] * 2, 4, [(1, 3), (1,) * 4]),
    "products of rows": Case('type: "Scale" scale_param { axis: 0 }', [(70,)] * 2, 4, [(1, 3), (1,) * 4]),
    "factors of items": Case('type: "Scale" scale_param { axis: 0 }', [(6, 15, 14), ()], 4, [(1, 3), (2, 2)]),
    "factors of channels": Case('type: "Scale" scale_param { axis: 0 }', [(6, 15, 14), (6,)], 4, [(1, 3), (2, 2)]),
    "factors of channels, one pixel": Case('type: "Scale" scale_param { axis: 0 }', [(6, 1, 1), (6,)], 4, [(1, 3)]),
    "factors of rows": Case('type: "Scale" scale_param { axis: 0 }', [(6, 200, 3), (6, 200)], 4, [(1, 3), (2, 2)]),
    "factors of rows of a matrix": Case('type: "Scale" scale_param { axis: 0 }', [(300,), ()], 40, [(1, 39), (20, 20)]),
    "biases of items": Case('type: "Bias" bias_param { axis: 0 }', [(6, 15, 14), ()], 4, [(1, 3), (2, 2)]),
    "biases of channels": Case('type: "Bias" bias_param { axis: 0 }', [(6, 15, 14), (6,)], 4, [(1, 3), (2, 2)]),
    "biases of rows of a matrix": Case('type: "Bias" bias_param { axis: 0 }', [(300,), ()], 40, [(1, 39), (20, 20)]),
    "many rows of an inner product": inner_product((40,), 70, 40, [(3, 37), (20, 20)], "bias_term: false"),
}


def sliceable() -> Iterator[Case]:
    """Cases of tests/cases in slices of one item and of two."""
    for op_case in CASES.values():
        of_three = op_case.of_items(3)
        if of_three is None or op_case.normalized or op_case.residual or op_case.relu or op_case.saved:
            continue
        layer, batch_slice = of_three.layer(), BatchSlice(0, 1, 3)
        results = [(step.record or layer.record, step) for step in steps_of(layer)]
        sums = [(record, step, record.over_items(step.step)) for record, step in results]
        if any(along.refusal for _, _, along in sums) or any(
            cpu_kernels.carry_bytes(replace(record, batch_slice=batch_slice), step.step, role) is None
            for record, step, along in sums
            for role in along.sums & set(step.writes)
        ):
            continue
        shapes = [shape[1:] for shape in of_three.shapes("medium")]
        labels = None if op_case.labels is None else {op_case.labels: op_case.classes}
        yield Case(op_case.text, shapes, 3, [(1, 2)], labels, op_case.phase, of_three)


@pytest.fixture(params=cpu.available_isas(), autouse=True)
def isa(request):
    cpu.set_isa(request.param)
    yield request.param
    cpu.set_isa("auto")


def empty(tensor: Tensor) -> np.ndarray:
    """Memory of a tensor, channels-last, filled with NaN or 0xFF."""
    kind = np.dtype(tensor.dtype)
    return np.full(tensor.nbytes, 0xFF, np.uint8).view(kind).reshape(tensor.stored)


def in_memory(values: np.ndarray) -> np.ndarray:
    """Channels-last, as float32."""
    return np.array(values.transpose(0, 2, 3, 1) if values.ndim == 4 else values, np.float32, order="C")


def run(record: OpRecord, step: str, arrays: Arrays, accumulated: Sequence[str] = ()) -> None:
    arrays = dict(arrays)
    workspace = cpu_kernels.workspace_bytes(record, step, arrays.keys())
    if workspace:
        arrays["workspace"] = np.full(workspace, 0xFF, np.uint8)
    call = CpuCall.from_arrays(arrays, {"seed": 1701, "step": 3}, accumulated=accumulated, layer="it")
    launches = cpu_kernels.bind(record, step, call)
    assert launches is not None
    for launch in launches:
        launch()


def is_sum(record: OpRecord, step: str, role: str) -> bool:
    return (role.startswith("dw") or role == "y0") and cpu_kernels.carry_bytes(record, step, role) is not None


def steps_of(layer: Layer) -> list[Step]:
    return [layer.forward(), *layer.backward(wants_of(layer))]


def operands(case: Case, layer: Layer) -> Arrays:
    """All values that the layer reads but does not write itself: channels-last memory by role."""
    rng = np.random.default_rng(3)
    arrays: Arrays = {}
    shared = {"x": layer.bottoms, "w": [p.tensor for p in layer.params], "dy": layer.tops}
    for stem, tensors in shared.items():
        for i, tensor in enumerate(tensors):
            if stem == "x" and case.labels and i in case.labels:
                values = rng.integers(0, case.labels[i], tensor.stored)
            else:
                values = rng.standard_normal(tensor.stored)
            arrays[f"{stem}{i}"] = np.asarray(values, np.float32)
    if case.drawn is not None:
        xs, ws = case.drawn.inputs(layer, rng)
        drawn = {f"{stem}{i}": value for stem, values in (("x", xs), ("w", ws)) for i, value in enumerate(values)}
        arrays |= {role: in_memory(value) for role, value in drawn.items()}
    if layer.type == "MultinomialLogisticLoss" or "STOCHASTIC" in case.text:
        arrays["x0"] = np.abs(arrays["x0"]) + np.float32(0.1)
    return arrays


def whole_batch(case: Case, adds: bool) -> Arrays:
    layer = case.layer(case.items)
    arrays = operands(case, layer)
    shape = Run(layer).tensor
    for step in steps_of(layer):
        record = step.record or layer.record
        added = [role for role in step.writes if adds and role.startswith("d")]
        for role in step.writes:
            arrays[role] = beginning(shape(role)) if role in added else empty(shape(role))
        run(record, step.step, {role: arrays[role] for role in (*step.reads, *step.writes)}, added)
    return arrays


def beginning(tensor: Tensor) -> np.ndarray:
    """The value that a result is added to."""
    return np.random.default_rng(8).standard_normal(tensor.stored).astype(np.float32)


def record_of_slice(record: OpRecord, whole: OpRecord, batch_slice: BatchSlice) -> OpRecord:
    """The record of a slice, with the normalizer of the whole batch."""
    same = {name: getattr(whole, name) for name in ("normalizer", "items") if name in {f.name for f in fields(whole)}}
    return replace(record, batch_slice=batch_slice, **same)


def in_slices(case: Case, counts: Sequence[int], adds: bool, overlaid: bool = False) -> Arrays:
    """The results of the slices: joined outputs, and the results of the last slice.  With `overlaid`, sums in place lie
    in the memory of the result."""
    whole = case.layer(case.items)
    given = operands(case, whole)
    carries: Arrays = {}
    results: Arrays = {}
    outputs: dict[str, list[np.ndarray]] = {}
    first = 0
    for count in counts:
        batch_slice = BatchSlice(first, count, case.items)
        layer = case.layer(count)
        arrays = {role: piece_of(whole, role, value, batch_slice) for role, value in given.items()}
        for number, (step, of_whole) in enumerate(zip(steps_of(layer), steps_of(whole), strict=True)):
            record = record_of_slice(step.record or layer.record, of_whole.record or whole.record, batch_slice)
            op, accumulated = {role: arrays[role] for role in step.reads}, []
            if "x1" in step.reads and case.labels:
                op["x1.whole"] = given["x1"]
            for role in step.writes:
                added = adds and role.startswith("d")
                start = beginning(Run(whole).tensor(role)) if added else None
                if not is_sum(record, step.step, role):
                    arrays[role] = empty(Run(layer).tensor(role)) if start is None else piece(start, batch_slice)
                    op[role] = arrays[role]
                    accumulated += [role] * added
                    outputs.setdefault(role, []).append(arrays[role])
                    continue
                carry = role + CARRY
                if batch_slice.is_first:
                    nbytes = carried_bytes(case, counts, number, role)
                    carries[carry] = np.full(nbytes, 0xFF, np.uint8).view(np.float32)
                op[carry] = carries[carry]
                if batch_slice.is_last or (batch_slice.is_first and added):
                    op[role] = results[role] = empty(Run(layer).tensor(role)) if start is None else start
                if batch_slice.is_last and added:
                    accumulated += [role, carry]
                if overlaid and batch_slice.is_last and cpu_kernels.sums_in_place(record, step.step, role):
                    result = carries[carry][: op[role].size]  # the carry may be longer, by its alignment
                    op[role] = results[role] = result.reshape(op[role].shape)
            run(record, step.step, op, accumulated)
        first += count
    joined = {
        role: np.concatenate([by_frame(each, count) for each, count in zip(pieces, counts, strict=True)], axis=1)
        for role, pieces in outputs.items()
        if role[0] in "yd"
    }
    return {**joined, **results}


def carried_bytes(case: Case, counts: Sequence[int], number: int, role: str) -> int:
    """Bytes that slices of these counts carry for a result of step `number`; they may depend on where slices end."""
    found = 0
    for count in counts:
        layer = case.layer(count)
        step = steps_of(layer)[number]
        record = replace(step.record or layer.record, batch_slice=BatchSlice(0, count, case.items))
        found = max(found, cpu_kernels.carry_bytes(record, step.step, role) or 0)
    assert found
    return found


def by_frame(array: np.ndarray, items: int) -> np.ndarray:
    """An array over items, or over the frames of `items` items, as [frames, items, ..]."""
    return array.reshape(-1, items, *array.shape[1:])


def piece(array: np.ndarray, batch_slice: BatchSlice) -> np.ndarray:
    items = by_frame(array, batch_slice.items)[:, batch_slice.first : batch_slice.first + batch_slice.count]
    return items.reshape(-1, *array.shape[1:]).copy()


def piece_of(whole: Layer, role: str, value: np.ndarray, batch_slice: BatchSlice) -> np.ndarray:
    scalar = value.ndim == 0
    return value if role.startswith("w") or scalar else piece(value, batch_slice)


def compare(case: Case, adds: bool = False) -> None:
    expected = whole_batch(case, adds)
    for counts in case.counts:
        assert sum(counts) == case.items
        for role, value in in_slices(case, counts, adds).items():
            want = expected[role]
            assert value.tobytes() == want.tobytes(), f"{role} of slices of {counts} has other bits"


@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("adds", [False, True], ids=["written", "added"])
@pytest.mark.parametrize("case", SUMS.values(), ids=SUMS)
def test_slices_give_the_gradients_of_the_whole_batch(case, adds):
    compare(case, adds)


@pytest.mark.parametrize("case", LOSSES.values(), ids=LOSSES)
def test_slices_give_the_loss_of_the_whole_batch(case):
    compare(case)


def test_slices_of_a_small_batch_carry_no_more_of_a_loss_than_its_items():
    sums, items = 256, 256 * -(-4 * 11 * 4 // 256)  # 4 items of 10 scores and a label, in whole units of 256 bytes
    assert query("softmax_loss_carry_bytes", (4, 10, 1)) == sums + items
    assert query("item_loss_carry_bytes", 4, 10) == sums + items
    assert query("euclidean_loss_carry_bytes", 1000) == sums + 8192  # two blobs of 1,000 floats


@pytest.mark.parametrize("case", ITEMS.values(), ids=ITEMS)
def test_slices_give_the_items_of_the_whole_batch(case):
    compare(case)


@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("case", [*sliceable()], ids=lambda case: case.drawn.name)
def test_every_op_case_gives_the_bits_of_the_whole_batch_in_slices(case):
    compare(case)


def test_slices_give_the_same_bits_on_any_number_of_threads():
    before = cpu.threads()
    try:
        for threads in (1, 3):
            cpu.set_threads(threads)
            compare(SUMS["copies of parts"])
            compare(SUMS["tiles of four by four"])
    finally:
        cpu.set_threads(before)


@pytest.mark.parametrize("name", ["gradient itself", "few rows", "rows of a table"])
def test_terms_of_an_in_place_sum_may_lie_over_the_result(name):
    case = SUMS[name]
    expected = whole_batch(case, False)
    got = in_slices(case, case.counts[0], False, overlaid=True)
    assert got["dw0"].base is not None  # a view of the carry
    assert got["dw0"].tobytes() == expected["dw0"].tobytes()


def test_slices_of_an_added_gradient_must_begin_with_it():
    case = SUMS["gradient itself"]
    layer = case.layer(4)
    step = next(step for step in steps_of(layer) if "dw0" in step.writes)
    record = replace(step.record or layer.record, batch_slice=BatchSlice(3, 4, 7))
    arrays = {role: operands(case, layer)[role] for role in step.reads}
    for role in step.writes:
        arrays[role] = empty(Run(layer).tensor(role))
        arrays[role + CARRY] = np.zeros(cpu_kernels.carry_bytes(record, step.step, role), np.uint8).view(np.float32)
    with pytest.raises(LayermemError, match="do not begin with it"):
        run(record, step.step, arrays, step.writes)


def test_a_convolution_of_two_bottoms_is_not_summed_in_slices():
    text = 'type: "Convolution" top: "a" top: "b" convolution_param { num_output: 2 kernel_size: 1 }'
    record = layer_of(text + ' bottom: "c" bottom: "d"', (2, 3, 4, 4), (2, 3, 4, 4)).record
    assert cpu_kernels.carry_bytes(replace(record, batch_slice=BatchSlice(0, 2, 4)), "wgrad", "dw0") is None


NORMS = {  # blocks of 64 lines within slices and across them, one part and several, channels before pixels
    "blocks within slices": ((6, 5, 8, 8), [(3, 3), (1,) * 6]),
    "blocks across slices": ((7, 70, 13, 11), [(3, 4), (1,) * 7]),
    "blocks of many slices": ((150, 9), [(30, 120), (60, 4, 86), (5,) * 30]),
    "parts": ((9, 33, 70, 50), [(4, 5), (1,) * 9, (1, 8)]),
    "channels before pixels": ((9, 6, 9001), [(4, 5), (1,) * 9]),
}


@pytest.mark.exhaustive(8)
@pytest.mark.parametrize("form", ["alone", "scaled", "relu", "residual"])
@pytest.mark.parametrize("name", NORMS)
def test_a_batch_norm_in_two_passes_is_that_of_the_whole_batch(name, form):
    shape, every = NORMS[name]
    norm = batch_norm_slices.norm_of(shape)
    record = batch_norm_slices.scaled(norm, relu=form == "relu", residual=form == "residual")
    for counts in every:
        batch_norm_slices.check(
            norm if form == "alone" else record, counts, run, cpu_kernels.carry_bytes, adds=form == "relu"
        )


def test_a_batch_norm_in_two_passes_has_the_same_bits_on_any_number_of_threads():
    before = cpu.threads()
    try:
        for threads in (1, 3):
            cpu.set_threads(threads)
            record = batch_norm_slices.scaled(batch_norm_slices.norm_of((9, 33, 70, 50)), relu=True)
            batch_norm_slices.check(record, (4, 5), run, cpu_kernels.carry_bytes)
    finally:
        cpu.set_threads(before)
