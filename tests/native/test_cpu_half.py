"""Conversions between float32 and 16 bits on the CPU equal those of NumPy, for every instruction set."""

import numpy as np
import pytest

from layermem.backends.cpu.device import NARROW, WIDEN
from layermem.backends.cpu.support.launch import launch
from layermem.backends.narrow import BITS, NAN, narrowed, widened

EDGES = np.array(
    [0, 0x8000, 0x7F80, 0xFF80, 0x7F81, 0x7FFF, 0xFFFF, 1, 0x8001, 0x7F7F, 0x3F80, 0x3F81], np.uint16
)  # zeros, infinities, NaNs, subnormal numbers, the largest, neighbours of 1
HALF_EDGES = np.array(
    [0, 0x8000, 0x7C00, 0xFC00, 0x7C01, 0x7FFF, 0xFFFF, 1, 0x8001, 0x3FF, 0x400, 0x7BFF, 0x3C00, 0x3C01], np.uint16
)  # the same of float16
COUNTS = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 1000, 70_001]
GUARD = 0xABAB


def same_numbers(values: np.ndarray, expected: np.ndarray) -> bool:
    """Whether numbers are equal, including signs of zeros; payloads of NaNs depend on the instruction."""
    numbers = ~np.isnan(expected)
    return values[numbers].tobytes() == expected[numbers].tobytes() and bool(np.isnan(values[~numbers]).all())


def floats(count: int, seed: int = 0) -> np.ndarray:
    """Floats with any bits, including every kind of number."""
    found = np.random.default_rng(seed).integers(0, 1 << 32, count, np.uint32).view(np.float32)
    near = np.random.default_rng(seed + 1).integers(0x32000000, 0x48000000, count // 2, np.uint32)  # those of float16
    found[1::2] = (near | found[1::2].view(np.uint32) & 0x80000000).view(np.float32)
    edges = np.concatenate([EDGES.astype(np.uint32) << 16, (EDGES.astype(np.uint32) << 16) + 0x8000]).view(np.float32)
    edges = np.concatenate([edges, widened(HALF_EDGES, "float16"), np.float32([65519.9, 65520, 2**-25, 3 * 2**-26])])
    found[: len(edges)] = edges[:count]
    return found


@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("begin", [0, 1, 3])
@pytest.mark.parametrize("count", COUNTS)
def test_widening_has_the_bits_of_numpy(isa, count, begin, dtype):
    """Tests elements without vector alignment and without surrounding bytes."""
    source = np.random.default_rng(count).integers(0, 1 << 16, count + begin, np.uint16)
    edges = (EDGES if dtype == "bfloat16" else HALF_EDGES)[:count]
    source[begin : begin + len(edges)] = edges
    target = np.full(count + begin + 8, 7.0, np.float32)
    launch(WIDEN[dtype], count, out=target[begin:].ctypes.data, x=source[begin:].ctypes.data)()
    assert same_numbers(target[begin : begin + count], widened(source[begin:], dtype))
    assert (target[:begin] == 7).all() and (target[begin + count :] == 7).all()


@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("begin", [0, 1, 3])
@pytest.mark.parametrize("count", COUNTS)
def test_rounding_has_the_bits_of_numpy(isa, count, begin, dtype):
    source = np.concatenate([np.zeros(begin, np.float32), floats(count, count)])
    target = np.full(count + begin + 8, GUARD, np.uint16)
    launch(NARROW[dtype], count, out=target[begin:].ctypes.data, x=source[begin:].ctypes.data)()
    np.testing.assert_array_equal(target[begin : begin + count], narrowed(source[begin:], dtype))
    assert (target[:begin] == GUARD).all() and (target[begin + count :] == GUARD).all()


@pytest.mark.parametrize("dtype", BITS)
def test_all_numbers_of_16_bits_come_back(isa, dtype):
    source = np.arange(1 << 16, dtype=np.uint16)
    wide, back = np.empty(1 << 16, np.float32), np.empty(1 << 16, np.uint16)
    launch(WIDEN[dtype], 1 << 16, out=wide.ctypes.data, x=source.ctypes.data)()
    assert same_numbers(wide, widened(source, dtype))
    launch(NARROW[dtype], 1 << 16, out=back.ctypes.data, x=wide.ctypes.data)()
    np.testing.assert_array_equal(back, np.where(np.isnan(wide), NAN, source))


@pytest.mark.parametrize("first", [0, 1])
def test_floats_between_all_numbers_of_float16_are_rounded_as_numpy_does(isa, first):
    """Tests every 2^11th float of each sign and its neighbours: each fraction of float16 four times, with its ties; one
    by one (`first`), and in vectors."""
    steps = np.arange(0, 1 << 32, 1 << 11, dtype=np.uint64)
    for beside in (0, 1, (1 << 11) - 1):
        source = (steps + beside).astype(np.uint32).view(np.float32)
        if first:
            source = source[:: 1 << 10]
        expected, target = narrowed(source, "float16"), np.empty(len(source), np.uint16)
        for begin, count in [(i, 1) for i in range(len(source))] if first else [(0, len(source))]:
            launch(NARROW["float16"], count, out=target[begin:].ctypes.data, x=source[begin:].ctypes.data)()
        np.testing.assert_array_equal(target, expected)
