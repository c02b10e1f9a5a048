"""The subset of protobuf's wire format that blobs need, to write and to find large arrays without copying a file.

A message is a sequence of fields: a key (number << 3 | kind) and a value; texts, messages and packed arrays have kind
LENGTH and a size before their bytes.

source  protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5  # kinds of fields
FIXED_BYTES = {FIXED64: 8, FIXED32: 4}


class WireError(ValueError):
    """The bytes are not a message, or not one that can be read here."""


class WireField(NamedTuple):
    """A field in a file: its key is at `begin`, its value in [start, stop)."""

    number: int
    kind: int
    begin: int
    start: int
    stop: int


def varint(number: int) -> bytes:
    """Encode a number in groups of 7 bits, the lowest first."""
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)


def length_head(number: int, size: int) -> bytes:
    """Encode the key of field `number` and its size, to precede `size` bytes."""
    return varint(number << 3 | LENGTH) + varint(size)


def fields(file: BinaryIO, start: int, stop: int) -> Iterator[WireField]:
    """Yield the fields of the message at [start, stop); the position of the file may change between them."""
    while start < stop:
        file.seek(begin := start)
        key = _read_varint(file)
        number, kind = key >> 3, key & 7
        if kind == LENGTH:
            size = _read_varint(file)
            start = file.tell()
        elif kind == VARINT:
            start = file.tell()
            _read_varint(file)
            size = file.tell() - start
        elif kind in FIXED_BYTES:
            start, size = file.tell(), FIXED_BYTES[kind]
        else:
            raise WireError(f"field {number} has kind {kind}")
        if number == 0 or start + size > stop:
            raise WireError(f"field {number} ends after its message")
        yield WireField(number, kind, begin, start, start + size)
        start += size


def read_span(file: BinaryIO, start: int, stop: int) -> bytes:
    file.seek(start)
    raw = file.read(stop - start)
    if len(raw) < stop - start:
        raise WireError("the file ends early")
    return raw


def _read_varint(file: BinaryIO) -> int:
    number = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            break
        number |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return number
    raise WireError("a number does not end")
