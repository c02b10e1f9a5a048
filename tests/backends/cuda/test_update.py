"""Update rules, constants and the norm of gradients, against the reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

import layermem.backends.reference  # noqa: F401
from layermem.backends.cuda.base import CudaCall
from layermem.backends.cuda.support.step_scalars import pack_step_scalars
from layermem.backends.cuda.support.struct_layout import layout
from layermem.backends.cuda.update import update_parameters
from layermem.backends.reference.base import REGISTRY, ReferenceCall
from layermem.backends.struct_layout import Array
from layermem.ops import ACCUMULATE, MAX_JOINED, Fill, GradientNorm, Tensor, Update
from layermem.solver.rules import HISTORY_COUNTS
from tests.backends.cuda.harness import Memory, Way, close, run_op
from tests.cases.records import SETTINGS
from tests.emulator import emulate
from tests.emulator.emulate import WAYS


@pytest.mark.parametrize(
    "changes",
    [{}, {"regularization": "L1"}, {"iter_size": 3}, {"clip": 0.5}, {"clip": 50.0}, {"weight_decay": 0.0}],
    ids=str,
)
@pytest.mark.parametrize("count", [7, 1500])
@pytest.mark.parametrize("rule", HISTORY_COUNTS)
def test_a_rule_moves_weights_and_optimizer_state_as_its_definition_does(rule, count, changes, rng):
    context = {**SETTINGS, **changes}
    arrays = {"w0": rng.standard_normal(count), "dw0": rng.standard_normal(count)}
    arrays |= {f"h{i}": rng.random(count) for i in range(HISTORY_COUNTS[rule])}
    if "clip" in changes:
        arrays["norm"] = np.array(3.0)
    truth = {role: np.float64(np.float32(a)) for role, a in arrays.items()}
    memory = Memory()
    got = {role: memory.stored(a, np.float32) for role, a in truth.items()}
    record = Update(rule, "w", Tensor((count,)), lr_mult=2.0, decay_mult=0.5)
    REGISTRY.bind(record, "update", ReferenceCall(truth, context))
    run_op(record, "update", got, context=context)
    memory.check()
    for role, value in truth.items():
        close(role, got[role], value, 2e-6)


@pytest.mark.parametrize("way", [Way(*way) for way in WAYS], ids=lambda way: way.mode)
@pytest.mark.parametrize("rule", HISTORY_COUNTS)
def test_parameters_of_one_launch_get_the_bits_of_their_own_launches(rule, way, rng):
    """Of any size, with rates and rows of their own."""
    counts = [1, 1024, 7, 1025, 4096, 64, 3000]
    records = [
        Update(rule, "w", Tensor((count, 2)), lr_mult=1 + i % 2, decay_mult=0.5 * i, first_row=i % 3)
        for i, count in enumerate(counts)
    ]
    memory, found = Memory(), []
    given = [
        {role: rng.random(2 * count + 4) for role in ("w0", "dw0", "h0", "h1")[: 3 + HISTORY_COUNTS[rule] - 1]}
        for count in counts
    ]
    context = {**SETTINGS, "clip": 0.5}
    for together in (False, True):
        arrays = [{role: memory.stored(value, np.float32) for role, value in each.items()} for each in given]
        norm = memory.stored(np.array([3.0]), np.float32)
        if together:
            scalars = np.frombuffer(bytearray(pack_step_scalars(context)), np.uint8)
            calls = [
                CudaCall(
                    addresses={role: array.ctypes.data for role, array in {**each, "norm": norm}.items()},
                    step_scalars=scalars.ctypes.data,
                )
                for each in arrays
            ]
            one = update_parameters([*zip(records, calls, strict=True)])
            emulate.load(f"cuda/{one.module}.cu", way.mode, order=way.order, copies=way.copies).launch(
                one.function,
                one.grid,
                one.block,
                one.packed(context),
                one.shared,
                buffers=[*(array for each in arrays for array in each.values()), norm, scalars],
            )
        else:
            for record, each in zip(records, arrays, strict=True):
                run_op(record, "update", {**each, "norm": norm}, context=context)
        memory.check()
        found.append([array.tobytes() for each in arrays for array in each.values()])
    assert found[0] == found[1]
    assert found[0] != [np.float32(value).tobytes() for each in given for value in each.values()]


def test_the_arguments_of_a_launch_hold_all_updates_that_join():
    arguments = layout("update", "UpdateArgs")
    assert {member.kind.count for member in arguments.members if isinstance(member.kind, Array)} == {MAX_JOINED}
    assert arguments.nbytes <= 4096  # of the parameters of a kernel


@pytest.mark.parametrize("clip", [-1.0, 0.5])
@pytest.mark.parametrize("rule", HISTORY_COUNTS)
def test_a_loss_scale_is_divided_out_bit_for_bit(rule, clip, rng):
    """Before gradients are clipped and weights decay."""
    found = []
    weights, gradient, state = rng.standard_normal(1502), rng.standard_normal(1502), rng.random((2, 1502))
    for scale in (1, 65536):
        memory = Memory()
        arrays = {"w0": weights, "dw0": np.float32(gradient) * np.float32(scale), "norm": np.array(3.0 * scale)}
        arrays |= {f"h{i}": state[i] for i in range(HISTORY_COUNTS[rule])}
        got = {role: memory.stored(a, np.float32) for role, a in arrays.items()}
        record = Update(rule, "w", Tensor((1502,)), scaled=scale > 1)
        run_op(record, "update", got, context={**SETTINGS, "clip": clip, "loss_scale": float(scale)})
        memory.check()
        found.append([value.tobytes() for role, value in got.items() if role not in ("dw0", "norm")])
    assert found[0] == found[1]


@pytest.mark.parametrize("norm", [np.inf, np.nan])
@pytest.mark.parametrize("rule", HISTORY_COUNTS)
def test_gradients_that_overflow_change_nothing(rule, norm, rng):
    memory = Memory()
    arrays = {"w0": rng.standard_normal(1502), "dw0": np.full(1502, norm), "norm": np.array(norm)}
    arrays |= {f"h{i}": rng.random(1502) for i in range(HISTORY_COUNTS[rule])}
    got = {role: memory.stored(a, np.float32) for role, a in arrays.items()}
    before = {role: value.tobytes() for role, value in got.items()}
    context = {**SETTINGS, "loss_scale": 65536.0}
    run_op(Update(rule, "w", Tensor((1502,)), scaled=True), "update", got, context=context)
    assert {role: value.tobytes() for role, value in got.items()} == before


@pytest.mark.parametrize("first", [0, 1, 3])
@pytest.mark.parametrize("rule", HISTORY_COUNTS)
def test_rows_of_a_parameter_change_as_they_do_with_all_rows(rule, first, rng):
    """Bit for bit, also where the first of them is not aligned."""
    rows, width, count = 5, 303, 2
    whole = {"w0": rng.standard_normal((rows, width)), "dw0": rng.standard_normal((rows, width))}
    whole |= {f"h{i}": rng.random((rows, width)) for i in range(HISTORY_COUNTS[rule])}
    memory = Memory()
    some = {r: memory.stored(a if r == "w0" else a[first : first + count], np.float32) for r, a in whole.items()}
    whole = {role: memory.stored(a, np.float32) for role, a in whole.items()}
    before = whole["w0"].copy()
    run_op(Update(rule, "w", Tensor((rows, width))), "update", whole, context=SETTINGS)
    run_op(Update(rule, "w", Tensor((count, width)), first_row=first), "update", some, context=SETTINGS)
    memory.check()
    own = slice(first, first + count)
    np.testing.assert_array_equal(some["w0"][own], whole["w0"][own])
    others = [row for row in range(rows) if not first <= row < first + count]
    np.testing.assert_array_equal(some["w0"][others], before[others])
    for role in whole.keys() - {"w0", "dw0"}:
        np.testing.assert_array_equal(some[role], whole[role][own])


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("count", [1, 7, 2052])
def test_gradients_of_micro_batches_are_added(count, way, rng):
    memory = Memory()
    total, part = (memory.stored(rng.standard_normal(count), np.float32) for _ in range(2))
    want = total + part
    run_op(Update(ACCUMULATE, "w", Tensor((count,))), "update", {"w0": total, "dw0": part}, way=Way(*way))
    memory.check()
    np.testing.assert_array_equal(total, want)


@pytest.mark.parametrize("counts", [[5], [3, 70000, 1], [4, 5, 6, 7, 8, 9, 10]])
def test_the_norm_is_that_of_all_gradients(counts, rng):
    memory = Memory()
    arrays = {f"x{i}": memory.stored(rng.standard_normal(n), np.float32) for i, n in enumerate(counts)}
    arrays["y0"] = memory.stored(np.array(np.nan), np.float32)
    run_op(GradientNorm(), "forward", arrays)
    want = np.sqrt(sum(np.sum(np.float64(a) ** 2) for role, a in arrays.items() if role != "y0"))
    close("y0", arrays["y0"], want, 1e-6)


@pytest.mark.parametrize("count", [1, 4, 1027])
@pytest.mark.parametrize("value", [0.3, 0.0])
def test_a_gradient_may_start_as_a_number(value, count):
    memory = Memory()
    y = memory.stored(np.full(count, np.nan), np.float32)
    run_op(Fill(value), "fill", {"y0": y})
    memory.check()
    assert (y == np.float32(value)).all()
    run_op(Fill(value, scaled=True), "fill", {"y0": y}, context={"loss_scale": 1024.0})
    memory.check()
    assert (y == np.float32(value) * 1024).all()


@pytest.mark.parametrize("count", [1, 4, 1027])
def test_a_number_may_be_added_to_a_gradient(count, rng):
    memory, before = Memory(), rng.standard_normal(count).astype(np.float32)
    y = memory.stored(before, np.float32)
    run_op(Fill(0.3), "fill", {"y0": y}, accumulates=("y0",))
    memory.check()
    np.testing.assert_array_equal(y, before + np.float32(0.3))
