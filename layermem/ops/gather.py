"""Embed and BatchReindex: rows of a table, chosen by index."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from layermem.ops.base import PIECES, WEIGHTS, Along, ReadsLabels, Tensor


@dataclass(frozen=True)
class Gather(ReadsLabels):
    """Takes one row of a table for each index.

    rows    number of rows of the table, each of `width` elements
    index   the tensor of the indices;  y  the rows chosen, one after the other
    """

    rows: int
    width: int
    index: Tensor
    y: Tensor

    @property
    def count(self) -> int:
        """Number of rows chosen."""
        return self.index.count

    @property
    def classes(self) -> int:
        return self.rows

    def bad_label(self, label: str) -> str:
        return f"reads index {label}, but it has {self.rows} rows: 0 to {self.rows - 1}; fix the data"


@dataclass(frozen=True)
class Embed(Gather):
    """The table is w0 [rows, width], the indices x0.

    forward   y0 from x0, w0 [, w1: bias]        wgrad   dw0 from x0, dy0; dw1 from dy0
    """

    bias: bool

    def over_items(self, step: str) -> Along:
        return WEIGHTS if step == "wgrad" else PIECES


@dataclass(frozen=True)
class BatchReindex(Gather):
    """The table is x0, a row for each of its items; the indices x1.

    forward   y0 from x0, x1        backward   dx0 from x1, dy0
    """

    x: Tensor

    @classmethod
    def of(cls, x: Tensor, index: Tensor) -> BatchReindex:
        y = Tensor((index.count, *x.shape[1:]))
        return cls(x.shape[0], prod(x.shape[1:]), index, y, x)
