"""Kernels of the cpu device that load and store 16 bits: each has the bits of the fp32 kernel on widened operands, with
rounded results, on every instruction set, for numbers, infinities, NaNs, subnormals and both zeros."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import pytest

from layermem._native import cpu
from layermem.backends.cpu import CpuDevice
from layermem.backends.cpu.base import Array
from layermem.backends.narrow import narrowed, widened
from layermem.backends.registry import narrow_roles
from layermem.graph.ops import Op
from layermem.layers.base import Layer, Step
from layermem.ops import NARROW, EndsInRelu
from tests.backends.test_cpu import RUNNABLE, arguments, stored
from tests.cases.narrow import LARGE
from tests.layers.harness import Run, batch_norm_scale, layer_of, logical, wants_of, with_epilogue

SPECIAL = np.array([np.inf, -np.inf, np.nan, 1e-40, -1e-40, 6e-8, -0.0, 0.0, 65504, 1e38], "float32")
BLOBS = ("x", "y", "dx", "dy")


@pytest.fixture(params=cpu.available_isas(), autouse=True)
def isa(request):
    cpu.set_isa(request.param)
    yield request.param
    cpu.set_isa("auto")


@pytest.fixture(params=NARROW)
def device(request):
    return CpuDevice(storage=request.param)


def bound(device: CpuDevice, run: Run, step: Step, adds: Collection[str], arrays: Mapping[str, Array]) -> None:
    """Run one op on copies of the arrays, whose workspace is NaNs."""
    record = step.record or run.layer.record
    workspace = np.full(device.workspace_bytes(record, step.step, arrays.keys()), 0xFF, "uint8")
    op = Op("op", "forward", record, step.step, {}, (), (), accumulates=frozenset(adds), layer_name="op")
    device.bind(op, {**arrays, "workspace": workspace}, {"seed": 7, "step": 3})()


def operands(run: Run, step: Step, dtype: str, taken: Collection[str], special: bool) -> dict[str, Array]:
    """Contents of the roles of a step: random values, and in 16-bit roles some special ones, as bits."""
    rng, arrays = np.random.default_rng(9), {}
    for role in dict.fromkeys((*step.reads, *step.writes, *step.updates)):
        source = run.arrays.get(role)
        if source is None or role in step.writes:
            source = logical(run.tensor(role), run.tensor(role).dtype)
            source[...] = rng.standard_normal(source.shape) if source.dtype == np.float32 else 0
        array = np.ascontiguousarray(stored(source))
        if role in taken:
            if special:
                places = rng.choice(array.size, min(array.size, len(SPECIAL)), replace=False)
                array = array.copy()
                array.reshape(-1)[places] = SPECIAL[: len(places)]
            array = narrowed(array, dtype)
        arrays[role] = array.copy()
    return arrays


def compare_with_conversions(device: CpuDevice, run: Run, step: Step, adds: Collection[str], special: bool, wide: str):
    """Compare the kernel if it takes 16 bits for all blobs except roles that begin with `wide`; return whether it
    does."""
    dtype = NARROW[device.storage]
    record = step.record or run.layer.record
    record = replace(record, relu_dtype=dtype) if isinstance(record, EndsInRelu) else record
    roles = dict.fromkeys((*step.reads, *step.writes, *step.updates))
    is_narrow = {r: r.rstrip("0123456789") in BLOBS and not (wide and r.startswith(wide)) for r in roles}
    dtypes = {role: dtype if is_narrow[role] else run.tensor(role).dtype for role in roles}
    taken = device.takes(record, step.step, dtypes, adds)
    if not taken:
        return False
    assert taken <= narrow_roles(dtypes)
    start = operands(run, step, dtype, taken, special)
    found = {role: array.copy() for role, array in start.items()}
    bound(device, run, step, adds, found)
    expected = {role: widened(array, dtype) if role in taken else array.copy() for role, array in start.items()}
    bound(CpuDevice(), run, step, adds, expected)
    for role in (*step.writes, *step.updates):
        value = narrowed(expected[role], dtype) if role in taken else expected[role]
        assert found[role].tobytes() == value.tobytes(), (step.step, role, sorted(adds))
    for role in step.reads:
        if role not in step.updates:
            assert found[role].tobytes() == start[role].tobytes(), f"{role} is only read"
    return True


def compare_steps(device: CpuDevice, layer: Layer, xs=(), ws=()) -> int:
    """The number of ops that were compared."""
    run, compared = arguments(layer, xs, ws), 0
    for step in filter(None, [layer.forward(), layer.recompute(), *layer.backward(wants_of(layer))]):
        backward = step.step not in ("forward", "recompute", "load", "store")
        for adds in ((), tuple(step.writes)) if backward else ((),):
            for special in (False, True):
                for wide in ("", "x"):
                    compared += compare_with_conversions(device, run, step, adds, special, wide)
        arrays = operands(run, step, "", (), special=False)
        bound(CpuDevice(), run, step, (), arrays)
        for role in (*step.writes, *step.updates):  # results of forward that backward reads
            run.arrays[role] = logical(run.tensor(role), run.tensor(role).dtype)
            stored(run.arrays[role])[...] = arrays[role]
    return compared


@pytest.mark.exhaustive(8)
@pytest.mark.parametrize("case", RUNNABLE, ids=lambda case: case.name)
def test_a_kernel_for_16_bits_has_the_bits_of_conversions(case, device):
    layer = case.layer("medium")
    compare_steps(device, layer, *case.inputs(layer, np.random.default_rng(6)))


@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("name", LARGE)
def test_so_it_has_in_blocks_and_parts(name, device):
    text, shape = LARGE[name]
    shapes = [shape] * max(1, text.count("bottom"))
    assert compare_steps(device, layer_of(text, *shapes)) >= 4


@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("residual", [False, True])
def test_so_it_has_of_a_batch_norm_with_its_scale(residual, relu, device):
    for shape in ((3, 70, 23, 19), (2, 3, 9, 7)):
        layer = batch_norm_scale(shape, relu=relu and not residual)
        assert compare_steps(device, with_epilogue(layer, residual=True, relu=relu) if residual else layer) >= 4


def test_so_it_has_with_a_relu_behind_it(device):
    for name in ("winograd", "pixelwise", "sum"):
        text, shape = LARGE[name]
        layer = layer_of(text, *[shape] * max(1, text.count("bottom")))
        assert compare_steps(device, with_epilogue(layer, residual=False, relu=True)) >= 2
