"""Bytes, seconds and changes as text: "1.5GiB", "512 KiB", "50%"; "45.0 ms"; "+12.3 %"."""

from __future__ import annotations

import re
from collections.abc import Callable
from numbers import Number

from layermem.errors import InputError

LIMIT_BYTES = 2**60  # more than any machine has, while sums of a few such amounts fit 63 bits
ALIGN = 256  # every offset in an arena is a multiple of this
SIZES = "512KiB, 1.5GiB"  # examples of an amount
FREE = "free"  # the budget that stands for all free memory of the device
_FACTOR = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _FACTOR[f"{_letter}ib"] = _FACTOR[_letter] = 1024**_power
    _FACTOR[f"{_letter}b"] = 1000**_power

_AMOUNT = re.compile(r"\s*([0-9]{1,3}(?:,[0-9]{3})+|[0-9]*\.?[0-9]+(?:e[0-9]{1,2})?)\s*([a-zA-Z%]*)\s*")


def parse_bytes(text: str, *, whole: int | None = None, examples: str = SIZES) -> int:
    """Parse `text` to bytes; a percentage refers to `whole` and is an error without it.  The error gives `examples`."""
    match = _AMOUNT.fullmatch(text)
    if match:
        number, unit = float(match[1].replace(",", "")), match[2].lower()
        if unit == "%" and whole is not None:
            return _within(number * whole / 100, text)
        if unit in _FACTOR:
            return _within(number * _FACTOR[unit], text)
    raise InputError(f"'{text}' is not an amount of memory; use a size such as {examples} or a number of bytes")


def free_share(text: str, free_bytes: int) -> int:
    """Parse "free", or a share of it such as "80%free", to bytes."""
    share = text.removesuffix(FREE).strip()
    if share and not share.endswith("%"):
        raise InputError(f"'{text}' is not an amount of memory; use 'free', or a share of it such as '80%free'")
    return parse_bytes(share or "100%", whole=free_bytes)


def bytes_of(amount: object, *, whole: Callable[[], int] | None = None, free: Callable[[], int] | None = None) -> int:
    """Return the bytes of an amount given in Python code: a number, or a text for parse_bytes() or free_share();
    `whole` is called for a percentage, and `free` for free memory."""
    if isinstance(amount, str):
        if free is not None and amount.endswith(FREE):
            return free_share(amount, free())
        if whole is not None and re.fullmatch(r"\s*[0-9.]+\s*", amount):
            _check_share(amount.strip())
        examples = SIZES + ", 50%" * (whole is not None) + ", 'free'" * (free is not None)
        return parse_bytes(amount, whole=whole() if whole is not None and "%" in amount else None, examples=examples)
    if isinstance(amount, Number) and not isinstance(amount, bool | complex):
        number = float(amount)  # type: ignore[arg-type]
        if number.is_integer() and number >= 0:
            _within(number, str(amount))
            return int(amount)  # type: ignore[call-overload, no-any-return]
        if 0 < number < 1:
            raise InputError(f"{amount} is not a number of bytes; for a share of the baseline use '{100 * number:g}%'")
    remedy = "use a number of bytes, or a text such as '1.5GiB' or '50%'"
    raise InputError(f"{amount!r} is not an amount of memory; {remedy}")


def _check_share(text: str) -> None:
    """InputError for a number of bytes that was meant as a percentage: no step fits 100 bytes.  One byte is the way to
    ask for the least budget."""
    number = parse_bytes(f"{text}%", whole=10**6) / 10**4
    if 0 < number <= 100 and number != 1:
        percent = number if number >= 1 else 100 * number
        raise InputError(f"'{text}' is {text} bytes; did you mean '{percent:g}%'? write a size as 1.5GiB")


def _within(amount: float, text: str) -> int:
    if amount >= LIMIT_BYTES:
        raise InputError(f"'{text}' is more memory than any machine has; use less than {format_bytes(LIMIT_BYTES)}")
    return int(amount)


def aligned(nbytes: int) -> int:
    """Round `nbytes` up to the alignment of offsets."""
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


def format_exact_bytes(count: int) -> str:
    """Return `count` bytes with the exact number after it: '1.50 GiB (1,610,612,736 bytes)'."""
    return format_bytes(count) if abs(count) < 1024 else f"{format_bytes(count)} ({count:,} bytes)"


def format_below(count: int, limit: int) -> str:
    """Return `count`, which is below `limit`, with its exact bytes if both would otherwise read alike."""
    return format_exact_bytes(count) if format_bytes(count) == format_bytes(limit) else format_bytes(count)


def format_seconds(seconds: float) -> str:
    """A duration with three significant figures in the unit that reads best: '3.20 us', '45.0 ms', '1,234 s'."""
    for factor, unit in ((1e-6, "us"), (1e-3, "ms")):
        if seconds < 999.5 * factor:
            return f"{_three_figures(seconds / factor)} {unit}"
    return f"{_three_figures(seconds)} s"


def format_change(share: float) -> str:
    """Return a relative change: 0.123 -> '+12.3 %'; values that round to zero are '+0.0 %', without a minus sign."""
    text = f"{share:+.1%}"
    return "+0.0 %" if text == "-0.0%" else text.replace("%", " %")


def format_beside(share: float, what: str) -> str:
    """Return a relative change in words: 0.123 -> '+12.3 % over WHAT', -0.028 -> '2.8 % less than WHAT'."""
    change = format_change(share)
    return f"{change[1:]} less than {what}" if change.startswith("-") else f"{change} over {what}"


def format_share(part: float, whole: float) -> str:
    """Return one amount as a share of another: 1, 8 -> '12.5 %'."""
    return f"{part / whole:.1%}".replace("%", " %") if whole else "0 %"


def _three_figures(number: float) -> str:
    digits = 0 if number >= 99.95 else 1 if number >= 9.995 else 2
    return f"{number:,.{digits}f}"
