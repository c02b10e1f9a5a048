"""Conversions between float32 and 16 bits on the CPU equal those of NumPy, for every instruction set."""

import numpy as np
import pytest

from layermem._native import cpu
from layermem.backends.narrow import narrowed, widened

EDGES = np.array(
    [0, 0x8000, 0x7F80, 0xFF80, 0x7F81, 0x7FFF, 0xFFFF, 1, 0x8001, 0x7F7F, 0x3F80, 0x3F81], np.uint16
)  # zeros, infinities, NaNs, subnormal numbers, the largest, neighbours of 1
COUNTS = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 1000, 70_001]
GUARD = 0xABAB


def floats(count: int, seed: int = 0) -> np.ndarray:
    """Floats of any bits, with every kind of number among them."""
    found = np.random.default_rng(seed).integers(0, 1 << 32, count, np.uint32).view(np.float32)
    edges = np.concatenate([EDGES.astype(np.uint32) << 16, (EDGES.astype(np.uint32) << 16) + 0x8000]).view(np.float32)
    found[: len(edges)] = edges[:count]
    return found


@pytest.mark.parametrize("begin", [0, 1, 3])
@pytest.mark.parametrize("count", COUNTS)
def test_widening_has_the_bits_of_numpy(isa, count, begin):
    """At elements that no vector is aligned to, and without a byte beside them."""
    source = np.random.default_rng(count).integers(0, 1 << 16, count + begin, np.uint16)
    source[begin : begin + len(EDGES)] = EDGES[:count]
    target = np.full(count + begin + 8, 7.0, np.float32)
    cpu.widen_bf16(count, out=target[begin:].ctypes.data, x=source[begin:].ctypes.data)()
    assert target[begin : begin + count].tobytes() == widened(source[begin:], "bfloat16").tobytes()
    assert (target[:begin] == 7).all() and (target[begin + count :] == 7).all()


@pytest.mark.parametrize("begin", [0, 1, 3])
@pytest.mark.parametrize("count", COUNTS)
def test_rounding_has_the_bits_of_numpy(isa, count, begin):
    source = np.concatenate([np.zeros(begin, np.float32), floats(count, count)])
    target = np.full(count + begin + 8, GUARD, np.uint16)
    cpu.narrow_bf16(count, out=target[begin:].ctypes.data, x=source[begin:].ctypes.data)()
    np.testing.assert_array_equal(target[begin : begin + count], narrowed(source[begin:], "bfloat16"))
    assert (target[:begin] == GUARD).all() and (target[begin + count :] == GUARD).all()


def test_all_numbers_of_16_bits_come_back(isa):
    source = np.arange(1 << 16, dtype=np.uint16)
    wide, back = np.empty(1 << 16, np.float32), np.empty(1 << 16, np.uint16)
    cpu.widen_bf16(1 << 16, out=wide.ctypes.data, x=source.ctypes.data)()
    cpu.narrow_bf16(1 << 16, out=back.ctypes.data, x=wide.ctypes.data)()
    np.testing.assert_array_equal(back, np.where(np.isnan(wide), 0x7FFF, source))
