"""Bytes and seconds as people read them."""

import pytest

from layermem.errors import InputError
from layermem.utils.units import (
    bytes_of,
    format_below,
    format_beside,
    format_bytes,
    format_change,
    format_exact_bytes,
    format_seconds,
    format_share,
    free_share,
    parse_bytes,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.00 us"),
        (3.2e-6, "3.20 us"),
        (4.5e-2, "45.0 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.00 s"),
        (4.7, "4.70 s"),
        (9.996, "10.0 s"),
        (245.4, "245 s"),
        (1234.0, "1,234 s"),
    ],
)
def test_a_duration_has_three_figures_and_no_exponent(seconds, text):
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1610612736, "1.50 GiB"),
        (1023 * 1024, "1.00 MiB"),
        (-2048, "-2.00 KiB"),
        (5 * 1024**5, "5,120 TiB"),
    ],
)
def test_bytes_have_three_figures_and_a_binary_unit(count, text):
    assert format_bytes(count) == text


def test_exact_bytes_are_in_parentheses_where_the_unit_rounds():
    assert [format_exact_bytes(count) for count in (0, 1000, 467200)] == ["0 B", "1000 B", "456 KiB (467,200 bytes)"]


def test_a_share_is_a_percentage_of_the_whole():
    assert [format_share(1, 8), format_share(3, 3), format_share(1, 0)] == ["12.5 %", "100.0 %", "0 %"]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("1", 1),
        ("2,480,343,040", 2480343040),
        ("1,024 KiB", 1048576),
        (" 1.5 gib ", 1610612736),
        ("800KB", 800_000),
        ("800K", 819_200),
        (".5M", 524_288),
        ("1048575TiB", 1048575 * 1024**4),
    ],
)
def test_an_amount_is_read_in_binary_or_decimal_units(text, count):
    assert parse_bytes(text) == count


def test_a_percentage_is_of_the_whole_and_loses_no_byte_by_rounding():
    assert parse_bytes("50%", whole=1_965_826) == 982_913 and parse_bytes("200%", whole=3) == 6
    assert all(parse_bytes(f"{n}%", whole=1_965_800) == 19_658 * n for n in range(101))


@pytest.mark.parametrize(
    "text", ["", "%", "abc", "-1", "1e", "e6", "1_000", "inf", "nan", "GiB", "1 XiB", "1.5.2", "50%", "1,5", "1,0000"]
)
def test_an_invalid_amount_is_refused_with_an_example(text):
    with pytest.raises(InputError, match=r"is not an amount of memory; use a size such as 512KiB, 1.5GiB or a number"):
        parse_bytes(text)


def test_the_example_names_what_the_caller_takes():
    with pytest.raises(InputError, match=r"a size such as 512KiB, 1.5GiB, 50%, 'free' or a number of bytes"):
        bytes_of("foo", whole=lambda: 1, free=lambda: 1)


@pytest.mark.parametrize("text", ["1048576TiB", "99999999TiB", "9" * 400])
def test_more_memory_than_any_machine_has_is_refused_before_it_is_counted_with(text):
    with pytest.raises(InputError, match=r"is more memory than any machine has; use less than 1,048,576 TiB"):
        parse_bytes(text)


def test_a_change_has_a_sign_and_no_minus_before_nothing():
    assert [format_change(share) for share in (0.1234, -0.05, 0.0, -0.0004, -0.0006)] == [
        "+12.3 %",
        "-5.0 %",
        "+0.0 %",
        "+0.0 %",
        "-0.1 %",
    ]


def test_an_amount_below_a_limit_shows_its_bytes_only_where_both_round_to_the_same():
    assert format_below(2**20, 2**21) == "1.00 MiB"
    assert format_below(467_199, 467_200) == "456 KiB (467,199 bytes)"


def test_a_share_of_free_memory():
    assert [free_share(text, 1000) for text in ("free", "80%free", "50 % free", "100%free")] == [1000, 800, 500, 1000]
    for text in ("5free", "xfree", "%free"):
        with pytest.raises(InputError):
            free_share(text, 1000)


def test_a_change_is_over_or_less_than_what_it_is_compared_with():
    said = [format_beside(share, "it") for share in (0.123, -0.028, -0.0001)]
    assert said == ["+12.3 % over it", "2.8 % less than it", "+0.0 % over it"]
