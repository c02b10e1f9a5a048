"""The device interface, and the search for devices."""

import numpy as np
import pytest

from layermem.backends import base
from layermem.backends.base import Device, describe_devices, get_device, sequence
from layermem.errors import InputError
from layermem.ops import Tensor
from layermem.utils.free_memory import FreeMemory


def test_calls_run_in_order_as_one():
    made: list[int] = []
    sequence([lambda: made.append(1), lambda: made.append(2), lambda: made.append(3)])()
    assert made == [1, 2, 3]
    single = lambda: made.append(4)  # noqa: E731
    assert sequence([single]) is single


def test_an_unknown_device_is_answered_with_those_that_exist():
    with pytest.raises(
        InputError, match=r"unknown device 'gpu' \(did you mean cuda\? choose from reference, cpu, cuda\)"
    ):
        get_device("gpu")


def test_every_device_is_described_on_one_line():
    lines = describe_devices()
    assert list(lines) == ["reference", "cpu", "cuda"]
    assert all(line and "\n" not in line for line in lines.values())


def test_bytes_of_a_tensor_follow_the_real_type_of_the_device():
    assert get_device("reference", real="float64").nbytes(Tensor((2, 3))) == 48
    assert get_device("reference").nbytes(Tensor((2, 3))) == 24
    assert get_device("reference", real="float64").nbytes(Tensor((5,), "uint8")) == 5


def test_the_defaults_serve_a_device_in_host_memory(monkeypatch):
    device, made = Device(), []
    source, target = np.arange(4, dtype="uint8"), np.zeros(4, "uint8")
    device.bind_copy(target, source)()
    assert target.tolist() == [0, 1, 2, 3]
    device.bind_fill(target, 255, "compute")()
    assert target.tolist() == [255] * 4
    device.run([lambda: made.append("a"), lambda: made.append("b")])
    assert made == ["a", "b"] and device.order_streams((), [sequence]) == [sequence]
    free = FreeMemory(5000, "free memory of this machine")
    monkeypatch.setattr(base, "free_memory", lambda: free)
    assert [device.free_bytes(), device.free_bytes(3000), device.free_bytes(6000)] == [5000, 2000, 0]
    monkeypatch.setattr(base, "free_memory", lambda: None)
    with pytest.raises(InputError, match="budget 'free': this system does not say how much memory it has"):
        device.free_bytes()
