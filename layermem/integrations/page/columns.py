"""Encodes columns of integers for a page (assets/data.js decodes them), and the values of a page as text.

[5, 5, 7, 8]  ->  [5, 0, 2, 1]     deltas() makes rising numbers small, which deflate packs well
pack({...})   ->  "eJyrVkrLz1e..." JSON, deflated, in base64: safe inside HTML whatever the names in it are
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from itertools import chain, pairwise

LEVEL = 9  # compression level of deflate


def deltas(numbers: Iterable[int]) -> list[int]:
    """The first number, then the difference of each number from the one before."""
    return [after - before for before, after in pairwise(chain((0,), numbers))]


class Strings:
    """Texts by index; equal texts are stored once."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}

    def add(self, text: str) -> int:
        return self._index.setdefault(text, len(self._index))

    @property
    def values(self) -> list[str]:
        return list(self._index)


def pack(values: Mapping[str, object]) -> str:
    """`values` as JSON, deflated (zlib), in base64."""
    text = json.dumps(values, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), LEVEL)).decode()


def unpack(text: str) -> dict[str, object]:
    """Return the values that were packed by pack()."""
    values: dict[str, object] = json.loads(zlib.decompress(base64.b64decode(text)))
    return values
