"""BatchNorm in two passes over slices of the batch, compared with forward and backward on the whole batch.

check()        runs both on one backend, with equal bits in every result
check_form()   the same for each way to cut the batch of a BatchNorm of tests/cases/slices.py
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Literal

import numpy as np

from layermem.ops import CARRY, BatchNorm, BatchNormScale, BatchSlice, Scale, Tensor
from tests.cases.slices import NORMS

Arrays = dict[str, np.ndarray]
Run = Callable[[BatchNorm | BatchNormScale, str, Mapping[str, np.ndarray], Collection[str]], object]
CarryBytes = Callable[[BatchNorm | BatchNormScale, str, str], "int | None"]
AVERAGES = ("w0", "w1", "w2")
AFFINE = ("w3", "w4")


def norm_of(shape: tuple[int, ...]) -> BatchNorm:
    return BatchNorm(Tensor(shape), eps=1e-5, fraction=0.9)


def scaled(norm: BatchNorm, *, relu: bool = False, residual: bool = False) -> BatchNormScale:
    rest = tuple(i for i in range(len(norm.x.shape)) if i != 1)
    view = tuple(1 if i in rest else size for i, size in enumerate(norm.x.shape))
    return BatchNormScale(norm, Scale(norm.x, "w0", view, rest, "w1"), relu=relu, residual=residual)


def with_items(record: BatchNorm | BatchNormScale, batch_slice: BatchSlice) -> BatchNorm | BatchNormScale:
    """The record of a slice, as the graph makes it from that of a batch of its items."""
    x = replace(record.x, shape=(batch_slice.count, *record.x.shape[1:]))
    norm = replace(record.norm if isinstance(record, BatchNormScale) else record, x=x)
    small = norm
    if isinstance(record, BatchNormScale):
        small = replace(record, norm=norm, scale=replace(record.scale, x=x))
    return small.of_slice(batch_slice, record)


def operands(record: BatchNorm | BatchNormScale) -> Arrays:
    """All values that forward and backward read, in the order of memory."""
    rng, c = np.random.default_rng(3), record.x.shape[1]
    shapes = {"x0": record.x.stored, "dy0": record.x.stored, "x1": record.x.stored}
    shapes |= {"w0": (c,), "w1": (c,), "w2": (1,), "w3": (c,), "w4": (c,)}
    made = {role: np.asarray(rng.standard_normal(shape), np.float32) for role, shape in shapes.items()}
    made["x0"] += np.float32(3)
    return {role: a for role, a in made.items() if role != "x1" or getattr(record, "residual", False)}


def new(shape: Sequence[int]) -> np.ndarray:
    return np.full(shape, np.nan, np.float32)


def whole(record: BatchNorm | BatchNormScale, run: Run, adds: bool) -> Arrays:
    a, c = operands(record), record.x.shape[1]
    affine = {role: a[role] for role in AFFINE if isinstance(record, BatchNormScale)}
    more = {"x1": a["x1"]} if "x1" in a else {}
    made = {"y0": new(record.x.stored), "mean": new((c,)), "inv_std": new((c,))}
    run(record, "forward", {"x0": a["x0"], **{w: a[w] for w in AVERAGES}, **affine, **more, **made}, ())
    gradients = {"dx0": begun(record, "dx0"), **{f"d{w}": begun(record, f"d{w}") for w in affine}}
    for gradient in gradients.values():
        gradient[...] = gradient if adds else np.nan
    read = {role: made[role] for role in ("mean", "inv_std")}
    added = [*gradients] if adds else []
    run(record, "backward", {"x0": a["x0"], "dy0": a["dy0"], **read, **affine, **gradients}, added)
    return {**made, **gradients, **{w: a[w] for w in AVERAGES}}


def begun(record: BatchNorm | BatchNormScale, role: str) -> np.ndarray:
    """The value that a gradient is added to."""
    shape = record.x.stored if role == "dx0" else (record.x.shape[1],)
    return np.random.default_rng(8).standard_normal(shape).astype(np.float32)


def in_slices(
    record: BatchNorm | BatchNormScale, counts: Sequence[int], run: Run, carry_bytes: CarryBytes, adds: bool
) -> Arrays:
    a, c = operands(record), record.x.shape[1]
    affine = {role: a[role] for role in AFFINE if isinstance(record, BatchNormScale)}
    starts = [0, *accumulate(counts)]
    slices = [BatchSlice(begin, end - begin, starts[-1]) for begin, end in pairwise(starts)]
    records = [with_items(record, batch_slice) for batch_slice in slices]
    made = {"y0": new(record.x.stored), "mean": new((c,)), "inv_std": new((c,))}

    def items(role: str, batch_slice: BatchSlice) -> np.ndarray:
        array = made[role] if role in made else a[role]
        return array[batch_slice.first : batch_slice.first + batch_slice.count]

    def first_pass(
        step: str, read: Mapping[str, np.ndarray], sliced: Collection[str], made_of: Arrays, added: Collection[str]
    ) -> None:
        carries: Arrays = {}
        for role in made_of:  # slices of one size alone need the bytes that this size says
            if nbytes := max(carry_bytes(small, step, role) or 0 for small in records):
                carries[role + CARRY] = np.full(nbytes, 0xFF, np.uint8)
        for batch_slice, small in zip(slices, records, strict=True):
            results = made_of if batch_slice.is_last else {}
            own = {role: items(role, batch_slice) for role in sliced}
            run(small, step, {**read, **own, **carries, **results}, added if batch_slice.is_last else ())

    statistics = {role: made[role] for role in ("mean", "inv_std")}
    first_pass("statistics", {}, ["x0"], {**statistics, **{w: a[w] for w in AVERAGES}}, ())
    for batch_slice, small in zip(slices, records, strict=True):
        own = {role: items(role, batch_slice) for role in ("x0", "y0", *(["x1"] if "x1" in a else []))}
        run(small, "recompute", {**own, **statistics, **affine}, ())
    gradients = {f"d{w}": begun(record, f"d{w}") for w in affine}
    sums = {"sums": new((2, c))}
    read = {**statistics, **affine}
    first_pass("gradient_sums", read, ["x0", "dy0"], {**sums, **gradients}, [*gradients] if adds else [])
    made["dx0"] = begun(record, "dx0")
    for batch_slice, small in zip(slices, records, strict=True):
        own = {role: items(role, batch_slice) for role in ("x0", "dy0", "dx0")}
        run(small, "input_gradient", {**own, **read, **sums}, ["dx0"] if adds else [])
    return {**made, **gradients, **{w: a[w] for w in AVERAGES}}


def check(
    record: BatchNorm | BatchNormScale, counts: Sequence[int], run: Run, carry_bytes: CarryBytes, adds: bool = False
) -> None:
    assert sum(counts) == record.x.shape[0]
    expected = whole(record, run, adds)
    for role, value in in_slices(record, counts, run, carry_bytes, adds).items():
        assert not np.isnan(value).any(), role
        assert value.tobytes() == expected[role].tobytes(), f"{role} of slices of {counts} has other bits"


def check_form(
    name: str, form: Literal["alone", "scaled", "relu", "residual"], run: Run, carry_bytes: CarryBytes
) -> None:
    """The BatchNorm of NORMS, alone or with its Scale and an epilogue, for each way to cut its batch."""
    shape, every, _ = NORMS[name]
    norm = norm_of(shape)
    fused = scaled(norm, relu=form == "relu", residual=form == "residual")
    for counts in every:
        check(norm if form == "alone" else fused, counts, run, carry_bytes, adds=form == "relu")
