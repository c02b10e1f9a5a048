"""Bytes as people write them: "1.5GiB", "512 KiB", "50%"."""

from __future__ import annotations

import re

from layermem.errors import InputError

LIMIT = 2**60  # bytes that no machine has; sums of a few such amounts still fit 63 bits
ALIGN = 256  # every offset in an arena is a multiple of this
FREE = "free"  # a budget: all that the device has
_FACTOR = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _FACTOR[f"{_letter}ib"] = _FACTOR[_letter] = 1024**_power
    _FACTOR[f"{_letter}b"] = 1000**_power

_AMOUNT = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([a-zA-Z%]*)\s*")


def parse_bytes(text: str, *, whole: int | None = None) -> int:
    """Bytes named by `text`; a percentage is taken of `whole` and refused where there is none."""
    match = _AMOUNT.fullmatch(text)
    if match:
        number, unit = float(match[1]), match[2].lower()
        if unit == "%" and whole is not None:
            return _within(number * whole / 100, text)
        if unit in _FACTOR:
            return _within(number * _FACTOR[unit], text)
    wanted = "a size such as 512KiB, 1.5GiB" + (", 50%" if whole is not None else "") + " or a number of bytes"
    raise InputError(f"'{text}' is no amount of memory; write {wanted}")


def _within(amount: float, text: str) -> int:
    if amount >= LIMIT:
        raise InputError(f"'{text}' is more memory than any machine has; write less than {format_bytes(LIMIT)}")
    return int(amount)


def aligned(nbytes: int) -> int:
    """`nbytes` rounded up to the alignment of offsets."""
    return -(-nbytes // ALIGN) * ALIGN


def format_bytes(count: float) -> str:
    """`count` bytes with three significant figures and a binary unit: 1610612736 -> '1.50 GiB'."""
    sign, count = ("-", -count) if count < 0 else ("", count)
    if count < 1024:
        return f"{sign}{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        count /= 1024
        if count < 999.5 or unit == "TiB":
            return f"{sign}{_three_figures(count)} {unit}"
    raise AssertionError("unreachable")


def format_seconds(seconds: float) -> str:
    """A duration with three significant figures in the unit that reads best: '3.20 us', '45.0 ms', '1,234 s'."""
    for factor, unit in ((1e-6, "us"), (1e-3, "ms")):
        if seconds < 999.5 * factor:
            return f"{_three_figures(seconds / factor)} {unit}"
    return f"{_three_figures(seconds)} s"


def format_change(share: float) -> str:
    """By how much something is more or less: 0.123 -> '+12.3%'; less than half of the last figure is '+0.0%'."""
    text = f"{share:+.1%}"
    return "+0.0%" if text == "-0.0%" else text


def _three_figures(number: float) -> str:
    digits = 0 if number >= 99.95 else 1 if number >= 9.995 else 2
    return f"{number:,.{digits}f}"
