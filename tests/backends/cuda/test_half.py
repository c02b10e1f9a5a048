"""Conversions between fp32 and 16 bits on emulated kernels: the bits of NumPy, and no byte beside them."""

from __future__ import annotations

import numpy as np
import pytest

from layermem.backends.cuda.support.half import VECTOR, narrow, widen
from layermem.backends.cuda.support.launch import THREADS
from layermem.backends.narrow import BITS, NAN, narrowed, widened
from tests.backends.cuda.conversions import run_narrow, run_widen
from tests.backends.cuda.harness import PLAIN, Way
from tests.emulator.emulate import WAYS
from tests.native.test_cpu_half import floats, same_numbers

COUNTS = [1, 3, 4, 5, 255, 256, 1023, 1024, 1025, 4 * THREADS + 4]
BEGINS = [0, 1, 4]  # elements in front: at those of 16 bytes, and off them


def check(count: int, begin: int, dtype: str, way: Way = PLAIN) -> None:
    bits = np.random.default_rng(count).integers(0, 1 << 16, count, np.uint16)
    assert same_numbers(run_widen(bits, dtype, begin, way), widened(bits, dtype))
    np.testing.assert_array_equal(run_narrow(floats(count), dtype, begin, way), narrowed(floats(count), dtype))


@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("begin", BEGINS)
@pytest.mark.parametrize("count", COUNTS)
def test_both_ways_have_the_bits_of_numpy(count, begin, dtype):
    check(count, begin, dtype)


@pytest.mark.parametrize("dtype", BITS)
def test_all_numbers_of_16_bits_come_back(dtype):
    bits = np.arange(1 << 16, dtype=np.uint16)
    wide = run_widen(bits, dtype)
    assert same_numbers(wide, widened(bits, dtype))
    np.testing.assert_array_equal(run_narrow(wide, dtype), np.where(np.isnan(wide), NAN, bits))


def test_floats_between_all_numbers_of_float16_are_rounded_as_numpy_does():
    """Around each number of float16 and each middle between two: every 2^12th float, and those beside it."""
    low, high = np.float32([2.0**-26, 2.0**17]).view(np.uint32)
    steps = np.arange(low, high, 1 << 12, dtype=np.uint32)
    for beside in (-1, 0, 1):
        source = (steps + np.uint32(beside & 0xFFFFFFFF)).view(np.float32)
        np.testing.assert_array_equal(run_narrow(source, "float16"), narrowed(source, "float16"))
        np.testing.assert_array_equal(run_narrow(-source, "float16"), narrowed(-source, "float16"))


@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("way", [Way(*way) for way in WAYS], ids=lambda way: f"{way.mode}-{way.order}-{way.copies}")
@pytest.mark.parametrize("count, begin", [(1028, 0), (1028, 1), (301, 0)])
def test_they_stay_in_bounds_in_any_order_of_threads(count, begin, way, dtype):
    check(count, begin, dtype, way)


def test_a_thread_moves_four_elements_at_once_where_both_sides_are_aligned_to_them():
    base, dtype = 1 << 20, "bfloat16"
    assert widen(base, base, 8, dtype).function == "widen_bf16_v4" and VECTOR == 4
    assert narrow(base + 8, base + 16, 8, "float16").function == "narrow_fp16_v4"
    others = [widen(base + 8, base, 8, dtype), widen(base, base + 4, 8, dtype), narrow(base + 4, base, 8, dtype)]
    others += [narrow(base, base + 8, 8, dtype), widen(base, base, 9, dtype), narrow(base, base, 7, dtype)]
    assert {each.function[-2:] for each in others} == {"v1"}
    assert widen(base, base, 4 * 4096, dtype).grid[0] == 4 and widen(base, base, 4097, dtype).grid[0] == 17
