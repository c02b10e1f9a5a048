"""Conversions between float32 and the element types of 16 bits, over all of their bit patterns."""

import numpy as np
import pytest

from layermem.backends.narrow import NAN, narrowed, widened
from layermem.ops import ITEMSIZE, NARROW

ALL_BITS = np.arange(1 << 16, dtype=np.uint16)


def bits(values: list[float], dtype: str = "bfloat16") -> list[int]:
    return narrowed(np.array(values, np.float32), dtype).tolist()


@pytest.mark.parametrize("dtype", NARROW.values())
def test_every_number_is_rounded_to_itself(dtype):
    values = widened(ALL_BITS, dtype)
    numbers = ~np.isnan(values)
    assert values.dtype == np.float32 and ITEMSIZE[dtype] == 2
    np.testing.assert_array_equal(narrowed(values, dtype)[numbers], ALL_BITS[numbers])


@pytest.mark.parametrize("dtype", NARROW.values())
def test_every_nan_becomes_the_same_one(dtype):
    values = widened(ALL_BITS, dtype)
    made = narrowed(values[np.isnan(values)], dtype)
    assert set(made.tolist()) == {NAN} and np.isnan(widened(made, dtype)).all()


@pytest.mark.parametrize("dtype", NARROW.values())
def test_numbers_are_rounded_to_the_nearest_and_ties_to_even(dtype):
    """Tests, between each two neighbours, the midpoint and the floats on either side of it."""
    values = widened(ALL_BITS, dtype)
    finite = np.unique(values[np.isfinite(values)])  # -0 and 0 are one
    low, high = finite[:-1], finite[1:]
    middle = ((low.astype(np.float64) + high) / 2).astype(np.float32)
    even = np.where(narrowed(low, dtype) % 2 == 0, low, high)
    np.testing.assert_array_equal(widened(narrowed(middle, dtype), dtype), even)
    below, above = np.nextafter(middle, np.float32(-np.inf)), np.nextafter(middle, np.float32(np.inf))
    np.testing.assert_array_equal(widened(narrowed(below, dtype), dtype), low)
    np.testing.assert_array_equal(widened(narrowed(above, dtype), dtype), high)


@pytest.mark.parametrize("dtype", NARROW.values())
def test_signs_and_infinities_stay(dtype):
    values = np.array([0.0, -0.0, np.inf, -np.inf, 1.0, -1.0], np.float32)
    assert widened(narrowed(values, dtype), dtype).tobytes() == values.tobytes()


def test_bfloat16_is_the_upper_half_of_a_float():
    assert bits([0.0, -0.0, 1.0, -2.0, 3.140625]) == [0x0000, 0x8000, 0x3F80, 0xC000, 0x4049]
    assert bits([256.0, 257.0, 258.0, 259.0]) == [0x4380, 0x4380, 0x4381, 0x4382]


def test_numbers_beyond_the_largest_bfloat16_become_infinity():
    around = np.array([0x7F7F0000, 0x7F7F7FFF, 0x7F7F8000, 0x7F7FFFFF], np.uint32).view(np.float32)
    assert narrowed(around, "bfloat16").tolist() == [0x7F7F, 0x7F7F, 0x7F80, 0x7F80]
    assert narrowed(-around, "bfloat16").tolist() == [0xFF7F, 0xFF7F, 0xFF80, 0xFF80]


def test_subnormal_numbers_of_bfloat16_are_kept():
    smallest = 2.0**-133
    assert bits([smallest, -smallest, smallest / 2, smallest * 1.5, 2.0**-149]) == [1, 0x8001, 0, 2, 0]


def test_float16_has_5_bits_of_exponent_and_10_of_fraction():
    assert bits([0.0, -0.0, 1.0, -2.0, 0.333], "float16") == [0x0000, 0x8000, 0x3C00, 0xC000, 0x3554]
    assert bits([2048.0, 2049.0, 2050.0, 2051.0], "float16") == [0x6800, 0x6800, 0x6801, 0x6802]


def test_numbers_beyond_the_largest_float16_become_infinity():
    around = [65504.0, 65519.9, 65520.0, 65536.0, 1e30]
    assert bits(around, "float16") == [0x7BFF, 0x7BFF, 0x7C00, 0x7C00, 0x7C00]
    assert bits([-each for each in around], "float16") == [0xFBFF, 0xFBFF, 0xFC00, 0xFC00, 0xFC00]


def test_subnormal_numbers_of_float16_are_kept():
    least = 2.0**-24
    assert bits([least, -least, least / 2, least * 1.5, 2.0**-14, 2.0**-40], "float16") == [1, 0x8001, 0, 2, 0x400, 0]


def test_every_nan_of_float32_is_a_nan():
    """Includes NaNs whose upper half is that of an infinity, and those that rounding would carry over."""
    made = np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000], np.uint32).view(np.float32)
    assert all(narrowed(made, dtype).tolist() == [NAN] * 5 for dtype in NARROW.values())


def test_the_shape_stays():
    values = np.zeros((2, 3, 4), np.float32).transpose(2, 0, 1)
    assert narrowed(values, "bfloat16").shape == (4, 2, 3)
    assert widened(np.zeros((2, 3), np.uint16), "bfloat16").shape == (2, 3)
