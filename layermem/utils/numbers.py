"""Numbers in the texts of users, as Caffe's parsers take them: in ASCII digits, without underscores between them.

Python's int() and float() also take the digits of other scripts, and 1_000.
"""

from __future__ import annotations


def parse_integer(text: str) -> int:
    """Return the whole number that `text` is; ValueError for another text."""
    return int(_plain(text))


def parse_float(text: str) -> float:
    """Return the number that `text` is; ValueError for another text."""
    return float(_plain(text))


def is_count(text: str) -> bool:
    """Whether `text` is a whole number from 0, without a sign."""
    return text.isascii() and text.isdecimal()


def _plain(text: str) -> str:
    if not text.isascii() or "_" in text:
        raise ValueError(f"'{text}' is not a number")
    return text
