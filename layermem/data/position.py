"""Positions of feeds in snapshots: a dictionary of numbers and text; a damaged file may lack some."""

from __future__ import annotations

from layermem.errors import InputError

State = dict[str, int | str]  # the position of a feed
NUMBER_END = 2**63  # exclusive limit of a count


def number_in(state: State, name: str) -> int:
    """The number `name` of a position; InputError unless it is a count."""
    value = state.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < NUMBER_END:
        raise _fault(name, value, "a count from 0")
    return value


def bytes_in(state: State, name: str) -> bytes:
    """The bytes `name` of a position, stored as hexadecimal digits; InputError if they are absent or invalid."""
    value = state.get(name)
    try:
        raw = bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:
        raw = b""
    if not raw:
        raise _fault(name, value, "a record's key in hexadecimal digits")
    return raw


def _fault(name: str, value: object, expected: str) -> InputError:
    text = str(value) if not isinstance(value, int) or abs(value) < NUMBER_END else "a longer number"
    return InputError(f"the position has the {name} {text[:40]!r}, not {expected}; use another snapshot")
