"""Ops on 16-bit operands: widening, rounding, and parts with the bits of the whole op."""

from dataclasses import replace

import numpy as np
import pytest

from layermem.backends.base import STORAGES, Device, get_device
from layermem.backends.cpu import CpuDevice
from layermem.backends.narrow import BITS, narrowed, widened
from layermem.backends.reference import ReferenceDevice
from layermem.backends.storage import bind_op
from layermem.errors import InputError
from layermem.graph.ops import Graph, Op
from layermem.ops import NARROW, Tensor
from tests.graph.test_storage import SMALL, Converting, limit_parts, stored

DEVICES = {"reference": ReferenceDevice, "cpu": CpuDevice}
KINDS = {**DEVICES, "converting": Converting}


@pytest.fixture(params=[(name, word) for name in KINDS for word in NARROW], ids="-".join)
def device(request: pytest.FixtureRequest) -> Device:
    name, word = request.param
    return KINDS[name](storage=word)


def arrays_of(graph: Graph, op: Op, device: Device) -> dict[str, np.ndarray]:
    """Random operands as the device stores them; what is written is poisoned, as is the workspace."""
    rng = np.random.default_rng(3)
    found = {}
    for role, name in op.roles.items():
        tensor = graph.buffers[name].tensor
        values = rng.standard_normal(tensor.stored).astype(np.float32)
        if tensor.dtype in BITS:
            values = narrowed(values, tensor.dtype)
        if name in op.writes:
            values.view(np.uint8)[...] = 0xFF
        found[role] = values
    return {**found, "workspace": np.full(op.workspace_bytes, 0xFF, np.uint8)}


def results(text: str, name: str, device: Device) -> dict[str, np.ndarray]:
    graph = stored(text, device)
    op = graph.by_name[name]
    arrays = arrays_of(graph, op, device)
    before = {role: array.copy() for role, array in arrays.items()}
    bind_op(device, op, arrays, {"seed": 1, "step": 0})()
    written = {role for role, b in op.roles.items() if b in (*op.writes, *op.updates)}
    for role in arrays.keys() - written - {"workspace"}:
        assert arrays[role].tobytes() == before[role].tobytes(), role
    return {role: arrays[role] for role in written}


@pytest.mark.parametrize("name", ["conv1.forward", "conv2.forward", "conv2.dgrad", "conv2.wgrad", "score.wgrad"])
def test_results_have_the_same_bits_for_parts_of_every_size(name, device, monkeypatch):
    found = []
    for nbytes in (1 << 30, 3000, 1):
        limit_parts(monkeypatch, nbytes)
        found.append(results(SMALL, name, device))
    assert found[0] and all(
        each[role].tobytes() == value.tobytes() for each in found for role, value in found[0].items()
    )


def test_a_result_is_that_of_the_widened_operands_rounded(device):
    graph = stored(SMALL, device)
    op = graph.by_name["conv2.forward"]
    arrays = arrays_of(graph, op, device)
    dtype = NARROW[device.storage]
    wide = {**arrays, "x0": widened(arrays["x0"], dtype), "y0": np.empty(arrays["y0"].shape, np.float32)}
    plain = replace(op, part_passes=())
    wide["workspace"] = np.empty(device.workspace_bytes(op.record, op.step, op.roles.keys()), np.uint8)
    device.bind(plain, wide, {"seed": 1, "step": 0})()
    bind_op(device, op, arrays, {"seed": 1, "step": 0})()
    np.testing.assert_array_equal(arrays["y0"], narrowed(wide["y0"], dtype))


def test_an_op_without_passes_is_bound_as_it_is(device):
    graph = stored(SMALL, CpuDevice())
    op = graph.by_name["conv2.forward"]
    assert not op.part_passes
    arrays = arrays_of(graph, op, device)
    bind_op(device, op, arrays, {"seed": 1, "step": 0})()
    assert np.isfinite(arrays["y0"]).all() and arrays["y0"].dtype == np.float32


@pytest.mark.parametrize("dtype", NARROW.values())
def test_a_view_is_a_tensor_at_a_byte_of_what_an_arena_gives(device, dtype):
    span = np.zeros(256, np.uint8)
    view = device.view(span, 6, Tensor((2, 3, 1, 2), dtype))
    assert view.shape == (2, 1, 2, 3) and view.dtype == np.uint16 and view.base is not None
    view[0, 0, 0, 1] = 0x1234
    assert span[8:10].view(np.uint16)[0] == 0x1234
    inner = device.view(view, 12, Tensor((1, 3, 1, 2), dtype))  # view of the second item
    assert np.shares_memory(inner, view[1]) and inner.shape == (1, 1, 2, 3)


@pytest.mark.parametrize("name", DEVICES)
def test_devices_have_a_storage_which_their_arithmetic_names(name):
    assert tuple(NARROW) == STORAGES[1:] and STORAGES[0] == "fp32" and get_device(name).storage == "fp32"
    for word in NARROW:
        narrow = get_device(name, storage=word)
        assert narrow.arithmetic == f"{get_device(name).arithmetic} storing {word}" and narrow.storage == word
        assert narrow.title == get_device(name).title  # costs are of kernels, which are those of fp32


@pytest.mark.parametrize("name", DEVICES)
def test_an_unknown_storage_is_refused(name):
    with pytest.raises(InputError, match=r"unknown storage 'int8' \(choose from fp32, bf16"):
        get_device(name, storage="int8")


def test_float64_is_not_stored_in_16_bits():
    with pytest.raises(InputError, match="float64 are stored as they are"):
        ReferenceDevice("float64", storage="bf16")
