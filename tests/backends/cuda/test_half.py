"""Conversions between fp32 and bfloat16 on emulated kernels: the bits of NumPy, and no byte beside them."""

from __future__ import annotations

import numpy as np
import pytest

from layermem.backends.cuda.half import VECTOR, narrow_bf16, widen_bf16
from layermem.backends.cuda.launch import THREADS, Launch
from layermem.backends.narrow import narrowed, widened
from tests.backends.cuda.harness import CONTEXT, PLAIN, Memory, Way
from tests.emulator import emulate
from tests.emulator.emulate import WAYS
from tests.native.test_cpu_half import floats

COUNTS = [1, 3, 4, 5, 255, 256, 1023, 1024, 1025, 4 * THREADS + 4]
BEGINS = [0, 1, 4]  # elements in front: at those of 16 bytes, and off them


def run(launch: Launch, buffers: list[np.ndarray], way: Way = PLAIN) -> None:
    kernels = emulate.load(f"cuda/{launch.module}.cu", way.mode, order=way.order, copies=way.copies)
    kernels.launch(
        launch.function, launch.grid, launch.block, launch.packed(CONTEXT), launch.shared, buffers=buffers
    )  # fmt: skip


def widen(source: np.ndarray, begin: int = 0, way: Way = PLAIN) -> np.ndarray:
    """Of an array of bits; both sides lie `begin` elements behind an address of an arena."""
    memory, count = Memory(), len(source)
    x, y = memory.bytes(2 * (count + begin)).view(np.uint16), memory.bytes(4 * (count + begin)).view(np.float32)
    x[begin:] = source
    run(widen_bf16(y[begin:].ctypes.data, x[begin:].ctypes.data, count), [x, y], way)
    memory.check()
    assert (y[:begin].view(np.uint32) == 0xFFFFFFFF).all()
    return y[begin:]


def narrow(source: np.ndarray, begin: int = 0, way: Way = PLAIN) -> np.ndarray:
    memory, count = Memory(), len(source)
    x, y = memory.bytes(4 * (count + begin)).view(np.float32), memory.bytes(2 * (count + begin)).view(np.uint16)
    x[begin:] = source
    run(narrow_bf16(y[begin:].ctypes.data, x[begin:].ctypes.data, count), [x, y], way)
    memory.check()
    assert (y[:begin] == 0xFFFF).all()
    return y[begin:]


@pytest.mark.parametrize("begin", BEGINS)
@pytest.mark.parametrize("count", COUNTS)
def test_both_ways_have_the_bits_of_numpy(count, begin):
    bits = np.random.default_rng(count).integers(0, 1 << 16, count, np.uint16)
    assert widen(bits, begin).tobytes() == widened(bits, "bfloat16").tobytes()
    np.testing.assert_array_equal(narrow(floats(count), begin), narrowed(floats(count), "bfloat16"))


def test_all_numbers_of_16_bits_come_back():
    bits = np.arange(1 << 16, dtype=np.uint16)
    wide = widen(bits)
    np.testing.assert_array_equal(narrow(wide), np.where(np.isnan(wide), 0x7FFF, bits))


@pytest.mark.parametrize("way", [Way(*way) for way in WAYS], ids=lambda way: f"{way.mode}-{way.order}-{way.copies}")
@pytest.mark.parametrize("count, begin", [(1028, 0), (1028, 1), (301, 0)])
def test_they_stay_in_bounds_in_any_order_of_threads(count, begin, way):
    bits = np.random.default_rng(count).integers(0, 1 << 16, count, np.uint16)
    assert widen(bits, begin, way).tobytes() == widened(bits, "bfloat16").tobytes()
    np.testing.assert_array_equal(narrow(floats(count), begin, way), narrowed(floats(count), "bfloat16"))


def test_a_thread_converts_four_elements_where_both_sides_are_aligned_to_them():
    base = 1 << 20
    assert widen_bf16(base, base, 8).function == "widen_bf16_v4" and VECTOR == 4
    assert narrow_bf16(base + 8, base + 16, 8).function == "narrow_bf16_v4"
    others = [widen_bf16(base + 8, base, 8), widen_bf16(base, base + 4, 8), narrow_bf16(base + 4, base, 8)]
    others += [narrow_bf16(base, base + 8, 8), widen_bf16(base, base, 9), narrow_bf16(base, base, 7)]
    assert {each.function[-2:] for each in others} == {"v1"}
    assert widen_bf16(base, base, 4096).grid[0] == 4 and widen_bf16(base, base, 4097).grid[0] == 17
