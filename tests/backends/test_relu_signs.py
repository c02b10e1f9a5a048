"""A ReLU's mask and its gradient use the sign of y after rounding for storage: in 16 bits the smallest numbers are
zeros. So a fused op has the bits of the separate ops, which read the stored blob."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from layermem.backends.cpu import CpuDevice
from layermem.backends.cuda import cuda_kernels
from layermem.backends.narrow import narrowed, widened
from layermem.backends.reference import ReferenceDevice
from layermem.graph.ops import Op
from layermem.ops import (
    LARGEST_ZERO,
    NARROW,
    NORM_OPERANDS,
    BatchNorm,
    BatchNormScale,
    Conv,
    ConvProblem,
    Eltwise,
    EndsInRelu,
    InnerProduct,
    Kind,
    OpRecord,
    Pointwise,
    Scale,
    Tensor,
    Window,
)
from tests.backends.cuda.harness import Memory, run_op

Arrays = dict[str, np.ndarray]
# The storage: blobs have this type if the kernel takes it, otherwise fp32, as between conversions.
Run = Callable[[OpRecord, str, Mapping[str, np.ndarray], Mapping[str, np.ndarray], str], Arrays]

TIMES = (
    np.float32(  # multiples of the largest number that is stored as zero; all but the largest one are numbers near it
        [0, 0.5, 1, 1 + 2**-7, 1.5, 2, 3, 1024, -0.5, -1, -1.5, -4, 0.75, 1 - 2**-8, 1 + 2**-6, 2.5]
    )
)
CHANNELS, ROWS, SIDE = len(TIMES), 5, 3
X = Tensor((ROWS, CHANNELS, SIDE, SIDE))


@pytest.mark.parametrize("dtype", NARROW.values())
def test_the_largest_zero_is_the_last_number_that_is_rounded_to_zero(dtype):
    zero = np.float32(LARGEST_ZERO[dtype])
    around = widened(narrowed(np.array([zero, np.nextafter(zero, np.float32(1))]), dtype), dtype)
    assert around[0] == 0 < around[1]


# -- devices -----------------------------------------------------------------------------------------------------------


def on_host(kind: type[ReferenceDevice]) -> Run:
    def run(record, step, given, made, word=""):
        device, dtype, operands = kind(storage=word or "fp32"), NARROW.get(word, ""), {**given, **made}
        taken = device.takes(record, step, dict.fromkeys(operands, dtype), ()) if word else frozenset()
        arrays = {role: narrowed(each, dtype) if role in taken else each.copy() for role, each in operands.items()}
        workspace = np.zeros(device.workspace_bytes(record, step, arrays.keys()), np.uint8)
        op = Op("op", "forward", record, step, {}, (), ())
        device.bind(op, {**arrays, "workspace": workspace}, {"seed": 1, "step": 0})()
        return {role: widened(arrays[role], dtype) if role in taken else arrays[role] for role in made}

    return run


def on_emulator(record, step, given, made, word=""):
    memory, dtype, operands = Memory(), NARROW.get(word, ""), {**given, **made}
    taken = cuda_kernels.takes(record, step, dict.fromkeys(operands, dtype), ()) if word else frozenset()
    arrays = {}
    for role, each in operands.items():
        values = narrowed(each, dtype) if role in taken else each
        arrays[role] = memory.bytes(values.nbytes).view(values.dtype).reshape(values.shape)
        arrays[role][...] = values
    run_op(record, step, arrays, storage=word if taken else "")
    memory.check()
    return {role: widened(arrays[role], dtype) if role in taken else arrays[role] for role in made}


RUNS: dict[str, Run] = {"reference": on_host(ReferenceDevice), "cpu": on_host(CpuDevice), "cuda": on_emulator}
NARROW_DEVICES = ("cpu", "cuda")  # whose kernels take 16 bits


# -- ops ---------------------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """A step of a record that makes y, as `tensor` has it, of the values: one for each channel."""

    record: EndsInRelu
    step: str
    arrays: Callable[[np.ndarray], Arrays]
    tensor: Tensor = X


def conv(groups: int = 1, kernel: int = 1, channels: int = CHANNELS) -> Case:
    window = Window(SIDE, kernel, pad=kernel // 2)
    problem = ConvProblem(ROWS, channels, channels, window, window, groups)

    def arrays(values: np.ndarray) -> Arrays:
        w = np.zeros((channels, kernel, kernel, channels), np.float32)
        w[:, kernel // 2, kernel // 2] = np.diag(values[:channels])
        if groups > 1:
            each = channels // groups
            w = np.stack([w[k, ..., k // each * each : (k // each + 1) * each] for k in range(channels)])
        return {"x0": np.ones(problem.image.stored, np.float32), "w0": w}

    return Case(Conv(problem), "forward", arrays, problem.maps)


def inner_product(transpose: bool = False) -> Case:
    x = Tensor((ROWS, CHANNELS))
    record = InnerProduct(x, x, ROWS, CHANNELS, CHANNELS, transpose=transpose)
    return Case(record, "forward", lambda values: {"x0": np.ones(x.shape, np.float32), "w0": np.diag(values)}, x)


def eltwise(bottoms: int) -> Case:
    def arrays(values: np.ndarray) -> Arrays:
        zeros = {f"x{i}": np.zeros(X.stored, np.float32) for i in range(bottoms)}
        return {**zeros, "x0": np.broadcast_to(values, X.stored).copy()}

    return Case(Eltwise("SUM", X, bottoms, (1.0,) * bottoms), "forward", arrays)


def numbers(values: np.ndarray, mean: str = "mean", inv_std: str = "inv_std", factor: str = "w3", bias: str = "w4"):
    """Statistics and factors of a BatchNorm that turns ones into the values."""
    of_channels = np.ones(CHANNELS, np.float32)
    return {mean: 0 * of_channels, inv_std: of_channels, factor: values, bias: 0 * of_channels}


NORM = BatchNormScale(BatchNorm(X, 1e-5, 0.9), Scale(X, "w3", (1, CHANNELS, 1, 1), (0, 2, 3), "w4"))
ONES, ZEROS = np.ones(X.stored, np.float32), np.zeros(X.stored, np.float32)


def norm_and_sum(values: np.ndarray) -> Arrays:
    return {"x0": ONES, "x1": ZEROS, **numbers(values)}


CASES = {
    "conv": conv(),
    "conv of 12 channels": conv(channels=12),
    "conv 3x3": conv(kernel=3),
    "depthwise": conv(groups=CHANNELS, kernel=3),
    "groups": conv(groups=CHANNELS // 4, kernel=3),
    "inner product": inner_product(),
    "transposed inner product": inner_product(transpose=True),
    "sum of 2": eltwise(2),
    "sum of 3": eltwise(3),
    "batch norm and sum": Case(replace(NORM, residual=True), "recompute", norm_and_sum),
}


def values_near_zero(dtype: str) -> np.ndarray:
    return TIMES * np.float32(LARGEST_ZERO[dtype])


def as_stored(y: np.ndarray, dtype: str) -> np.ndarray:
    return widened(narrowed(y, dtype), dtype)


def bits_of(y: np.ndarray) -> np.ndarray:
    return np.packbits(y > 0, bitorder="little")


@pytest.mark.parametrize("word", NARROW)
@pytest.mark.parametrize("device", RUNS)
@pytest.mark.parametrize("name", CASES)
def test_a_mask_is_that_of_the_relu_apart(name, device, word):
    (record, step, arrays, tensor), run, dtype = CASES[name], RUNS[device], NARROW[word]
    given = arrays(values_near_zero(dtype))
    made = {"y0": np.zeros(tensor.stored, np.float32)}
    mask = {"mask": np.zeros(-(-tensor.count // 8), np.uint8)}
    y = run(record, step, given, made)["y0"]
    stored = as_stored(y, dtype)
    assert (bits_of(y) != bits_of(stored)).any(), "no value is near enough to zero"
    relu = Pointwise(Kind.RELU, Tensor((tensor.count,)))
    flat = {"x0": stored.reshape(-1)}
    apart = run(relu, "forward", flat, {"y0": np.zeros(tensor.count, np.float32), **mask})
    np.testing.assert_array_equal(apart["mask"], bits_of(stored))
    fused = replace(record, relu=True, relu_dtype=dtype)
    found = run(fused, step, given, {**made, **mask})
    np.testing.assert_array_equal(found["mask"], apart["mask"])
    np.testing.assert_array_equal(as_stored(found["y0"], dtype).reshape(-1), apart["y0"])


@pytest.mark.parametrize("word", NARROW)
@pytest.mark.parametrize("device", NARROW_DEVICES)
@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("sum")])
def test_kernels_on_16_bits_write_the_mask_of_what_they_store(name, device, word):
    (record, step, arrays, tensor), dtype = CASES[name], NARROW[word]
    made = {"y0": np.zeros(tensor.stored, np.float32), "mask": np.zeros(-(-tensor.count // 8), np.uint8)}
    given = arrays(values_near_zero(dtype))
    found = RUNS[device](replace(record, relu=True, relu_dtype=dtype), step, given, made, word)
    np.testing.assert_array_equal(found["mask"], bits_of(as_stored(found["y0"], dtype)))


@pytest.mark.parametrize("word", NARROW)
@pytest.mark.parametrize("device", NARROW_DEVICES)
@pytest.mark.parametrize("bottoms", [2, 3])
def test_a_sum_of_16_bits_has_the_mask_of_what_is_stored(bottoms, device, word):
    """The blobs are too large to come near zero, and their coefficients are not."""
    dtype = NARROW[word]
    coefficients = (LARGEST_ZERO[dtype], 1.0, 1.0)[:bottoms]
    record = Eltwise("SUM", X, bottoms, coefficients, relu=True, relu_dtype=dtype)
    made = {"y0": np.zeros(X.stored, np.float32), "mask": np.zeros(-(-X.count // 8), np.uint8)}
    found = RUNS[device](record, "forward", eltwise(bottoms).arrays(TIMES), made, word)
    np.testing.assert_array_equal(found["mask"], bits_of(found["y0"]))
    assert (found["mask"] != bits_of(np.broadcast_to(TIMES, X.stored))).any()


# -- the gradient of a ReLU whose y is absent --------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["", *NARROW])
@pytest.mark.parametrize("device", RUNS)
def test_a_batch_norm_lets_gradients_through_where_its_stored_y_is_positive(device, word, rng):
    for dtype in [NARROW[word]] if word else NARROW.values():
        if word and device not in NARROW_DEVICES:
            return  # operands are converted: the case of fp32
        run = RUNS[device]
        values = values_near_zero(dtype)
        dy = as_stored(rng.standard_normal(X.stored).astype(np.float32), dtype)
        given = {"x0": ONES, **numbers(values)}
        y = run(NORM, "recompute", given, {"y0": ZEROS})["y0"]
        cleared = np.where(as_stored(y, dtype) > 0, dy, np.float32(0))
        made = {"dx0": ZEROS, "dw3": 0 * values, "dw4": 0 * values}
        apart = run(NORM, "backward", {**given, "dy0": cleared}, made, word)
        fused = run(replace(NORM, relu=True, relu_dtype=dtype), "backward", {**given, "dy0": dy}, made, word)
        for role in made:
            np.testing.assert_array_equal(fused[role], apart[role])
        not_rounded = run(replace(NORM, relu=True), "backward", {**given, "dy0": dy}, made, word)
        assert (not_rounded["dw4"] != apart["dw4"]).any()


@pytest.mark.parametrize("word", NARROW)
@pytest.mark.parametrize("groups", [1, CHANNELS], ids=["in the epilogue", "by a launch"])
def test_a_dgrad_leaves_the_sums_of_gradients_where_the_stored_y_is_positive(groups, word, rng):
    dtype = NARROW[word]
    values = values_near_zero(dtype)
    problem = ConvProblem(ROWS, CHANNELS, CHANNELS, Window(SIDE, 1), Window(SIDE, 1), groups)
    given = {
        "dy0": as_stored(rng.standard_normal(X.stored).astype(np.float32), dtype),
        "w0": conv(groups).arrays(np.ones(CHANNELS, np.float32))["w0"],
    }
    of_norm = dict(zip(NORM_OPERANDS, [ONES, *numbers(values).values()], strict=True))
    made = {"dx0": ZEROS, "norm_sums": np.zeros(problem.norm_sums.shape, np.float32)}
    record = Conv(problem, relu_dtype=dtype)
    found = on_emulator(record, "dgrad", {**given, **of_norm}, made, word)["norm_sums"]
    plain = on_emulator(record, "dgrad", {**given, **dict(list(of_norm.items())[:3])}, made, word)["norm_sums"]
    np.testing.assert_array_equal(found, np.where(as_stored(values, dtype) > 0, plain, np.float32(0)))


# -- graphs ------------------------------------------------------------------------------------------------------------
