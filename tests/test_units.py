"""Bytes and seconds as people read them."""

import pytest

from layermem.units import format_bytes, format_seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.00 us"), (3.2e-6, "3.20 us"), (4.5e-2, "45.0 ms"), (0.9994, "999 ms"), (0.9996, "1.00 s"),
        (4.7, "4.70 s"), (9.996, "10.0 s"), (245.4, "245 s"), (1234.0, "1,234 s"),
    ],
)  # fmt: skip
def test_a_duration_has_three_figures_and_no_exponent(seconds, text):
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (1610612736, "1.50 GiB"), (1023 * 1024, "1.00 MiB"),
     (-2048, "-2.00 KiB"), (5 * 1024**5, "5,120 TiB")],
)  # fmt: skip
def test_bytes_have_three_figures_and_a_binary_unit(count, text):
    assert format_bytes(count) == text
