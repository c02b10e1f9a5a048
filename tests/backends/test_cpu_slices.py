"""Ops of slices of a batch on the cpu device: all slices together give the bits of the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import pytest

from layermem._native import cpu
from layermem.backends.cpu.base import CpuCall, cpu_kernels
from layermem.backends.cpu.support.launch import query
from layermem.errors import LayermemError
from layermem.ops import CARRY, BatchSlice, OpRecord, Tensor
from tests import batch_norm_slices
from tests.cases.slices import NORMS, SLICED, SlicedCase, by_frame, op_cases, piece, sliced
from tests.layers.harness import Run, steps_of

Arrays = dict[str, np.ndarray]
ON_CPU = {name: case for name, case in SLICED.items() if "cpu" in case.devices}


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


def operands(case: SlicedCase) -> Arrays:
    """All values that the layer reads but does not write itself: channels-last memory by role."""
    values = case.values(case.layer(case.items), np.random.default_rng(3))
    return {role: in_memory(value) for role, value in values.items()}


def whole_batch(case: SlicedCase, adds: bool) -> Arrays:
    layer = case.layer(case.items)
    arrays = operands(case)
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


def in_slices(case: SlicedCase, counts: Sequence[int], adds: bool, overlaid: bool = False) -> Arrays:
    """The results of the slices: joined outputs, and the results of the last slice.  With `overlaid`, sums in place lie
    in the memory of the result."""
    whole = case.layer(case.items)
    given = operands(case)
    carries: Arrays = {}
    results: Arrays = {}
    outputs: dict[str, list[np.ndarray]] = {}
    first = 0
    for count in counts:
        batch_slice = BatchSlice(first, count, case.items)
        layer = case.layer(count)
        split = {role for role in given if Run(layer).tensor(role).shape != Run(whole).tensor(role).shape}
        arrays = {role: copy_of(value, batch_slice) if role in split else value for role, value in given.items()}
        for number, (step, of_whole) in enumerate(zip(steps_of(layer), steps_of(whole), strict=True)):
            record = record_of_slice(step.record or layer.record, of_whole.record or whole.record, batch_slice)
            op, accumulated = {role: arrays[role] for role in step.reads}, []
            op |= {f"{role}.whole": given[role] for role in record.over_items(step.step).counted}
            for role in step.writes:
                added = adds and role.startswith("d")
                start = beginning(Run(whole).tensor(role)) if added else None
                if not is_sum(record, step.step, role):
                    arrays[role] = empty(Run(layer).tensor(role)) if start is None else copy_of(start, batch_slice)
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


def carried_bytes(case: SlicedCase, counts: Sequence[int], number: int, role: str) -> int:
    """Bytes that slices of these counts carry for a result of step `number`; they may depend on where slices end."""
    found = 0
    for count in counts:
        layer = case.layer(count)
        step = steps_of(layer)[number]
        record = replace(step.record or layer.record, batch_slice=BatchSlice(0, count, case.items))
        found = max(found, cpu_kernels.carry_bytes(record, step.step, role) or 0)
    assert found
    return found


def copy_of(array: np.ndarray, batch_slice: BatchSlice) -> np.ndarray:
    """The items of a slice, frame by frame."""
    return piece(array, batch_slice).reshape(-1, *array.shape[1:]).copy()


def compare(case: SlicedCase, adds: bool = False) -> None:
    expected = whole_batch(case, adds)
    for counts in case.counts:
        assert sum(counts) == case.items
        for role, value in in_slices(case, counts, adds).items():
            want = expected[role]
            assert value.tobytes() == want.tobytes(), f"{role} of slices of {counts} has other bits"


@pytest.mark.exhaustive(6)
@pytest.mark.parametrize("adds", [False, True], ids=["written", "added"])
@pytest.mark.parametrize("case", ON_CPU.values(), ids=ON_CPU)
def test_slices_give_the_bits_of_the_whole_batch(case, adds):
    compare(case, adds)


def test_slices_of_a_small_batch_carry_no_more_of_a_loss_than_its_items():
    sums, items = 256, 256 * -(-4 * 11 * 4 // 256)  # 4 items of 10 scores and a label, in whole units of 256 bytes
    assert query("softmax_loss_carry_bytes", (4, 10, 1)) == sums + items
    assert query("item_loss_carry_bytes", 4, 10) == sums + items
    assert query("euclidean_loss_carry_bytes", 1000) == sums + 8192  # two blobs of 1,000 floats


@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("case", [*op_cases(3, [(1, 2)], cpu_kernels, masks=True)], ids=lambda case: case.op.name)
def test_every_op_case_gives_the_bits_of_the_whole_batch_in_slices(case):
    compare(case)


def test_slices_give_the_same_bits_on_any_number_of_threads():
    before = cpu.threads()
    try:
        for threads in (1, 3):
            cpu.set_threads(threads)
            compare(SLICED["copies of parts"])
            compare(SLICED["tiles of four by four"])
    finally:
        cpu.set_threads(before)


@pytest.mark.parametrize("name", ["gradient itself", "few rows", "rows of a table, 7 items"])
def test_terms_of_an_in_place_sum_may_lie_over_the_result(name):
    case = SLICED[name]
    expected = whole_batch(case, False)
    got = in_slices(case, case.counts[0], False, overlaid=True)
    assert got["dw0"].base is not None  # a view of the carry
    assert got["dw0"].tobytes() == expected["dw0"].tobytes()


def test_slices_of_an_added_gradient_must_begin_with_it():
    case = SLICED["gradient itself"]
    layer = case.layer(4)
    step = next(step for step in steps_of(layer) if "dw0" in step.writes)
    record = replace(step.record or layer.record, batch_slice=BatchSlice(3, 4, 7))
    arrays = {role: copy_of(operands(case)[role], record.batch_slice) for role in step.reads}
    for role in step.writes:
        arrays[role] = empty(Run(layer).tensor(role))
        arrays[role + CARRY] = np.zeros(cpu_kernels.carry_bytes(record, step.step, role), np.uint8).view(np.float32)
    with pytest.raises(LayermemError, match="do not begin with it"):
        run(record, step.step, arrays, step.writes)


def test_a_convolution_of_two_bottoms_is_not_summed_in_slices():
    text = 'type: "Convolution" top: "a" top: "b" convolution_param { num_output: 2 kernel_size: 1 }'
    record = sliced(text, [(2, 3, 4, 4)] * 2).layer(2).record
    assert cpu_kernels.carry_bytes(replace(record, batch_slice=BatchSlice(0, 2, 4)), "wgrad", "dw0") is None


@pytest.mark.exhaustive(8)
@pytest.mark.parametrize("form", ["alone", "scaled", "relu", "residual"])
@pytest.mark.parametrize("name", NORMS)
def test_a_batch_norm_in_two_passes_is_that_of_the_whole_batch(name, form):
    batch_norm_slices.check_form(name, form, run, cpu_kernels.carry_bytes)


def test_a_batch_norm_in_two_passes_has_the_same_bits_on_any_number_of_threads():
    before = cpu.threads()
    try:
        for threads in (1, 3):
            cpu.set_threads(threads)
            record = batch_norm_slices.scaled(batch_norm_slices.norm_of((9, 33, 70, 50)), relu=True)
            batch_norm_slices.check(record, (4, 5), run, cpu_kernels.carry_bytes)
    finally:
        cpu.set_threads(before)
