"""Ops that move elements or rename axes without arithmetic.

A `view` leaves every byte where it is: the op permits the overlay, and its kernel then does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import MIXES, PIECES, Along, OpRecord, PerItem, Tensor


@dataclass(frozen=True)
class Partition(OpRecord):
    """A blob `whole` and its consecutive `parts` along axis `along`; part i begins at starts[i]."""

    whole: Tensor
    parts: tuple[Tensor, ...]
    along: int
    starts: tuple[int, ...]

    @property
    def view(self) -> bool:
        return len(self.parts) == 1

    def over_items(self, step: str) -> Along:
        return PIECES if self.along else MIXES


@dataclass(frozen=True)
class Concat(Partition):
    """forward   y0 (whole) from x{i} (parts)      backward   dx{i} from dy0"""


@dataclass(frozen=True)
class Slice(Partition):
    """forward   y{i} (parts) from x0 (whole)      backward   dx0 from dy{i}"""


@dataclass(frozen=True)
class Split(PerItem):
    """forward   y{i} = x0, `tops` times           backward   dx0 = the sum of dy{i}"""

    x: Tensor
    tops: int


@dataclass(frozen=True)
class Reshape(OpRecord):
    """The elements of x in Caffe's order under the axes of y (Flatten and Reshape).

    forward   y0 from x0        backward   dx0 from dy0
    """

    x: Tensor
    y: Tensor

    @property
    def view(self) -> bool:
        return self.y.ordered_like(self.x)

    def over_items(self, step: str) -> Along:
        return PIECES if self.x.shape[:1] == self.y.shape[:1] else MIXES


@dataclass(frozen=True)
class Tile(OpRecord):
    """forward   y0 = x0 repeated `tiles` times along axis `along`      backward   dx0 = the sum of its copies in dy0"""

    x: Tensor
    y: Tensor
    along: int
    tiles: int

    def over_items(self, step: str) -> Along:
        return PIECES if self.along else MIXES


@dataclass(frozen=True)
class Silence(PerItem):
    """forward   nothing"""
