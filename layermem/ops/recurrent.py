"""LstmUnit: one step of an LSTM after its inner products.  Carry: copies net state to a blob and back."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import OpRecord, Tensor


@dataclass(frozen=True)
class LstmUnit(OpRecord):
    """c' = cont f c + i g,  h = o tanh(c'),  with i, f, o = sigmoid and g = tanh of the four parts of an item's gates.

    forward    y0 (c'), y1 (h) from x0 (c), x1 (gates, [items, 4 cells]), x2 (cont, [items])
    backward   dx0, dx1 from x0, x1, x2, dy0, dy1
    """

    items: int
    cells: int

    @property
    def count(self) -> int:
        """Number of elements of c."""
        return self.items * self.cells


@dataclass(frozen=True)
class Carry(OpRecord):
    """A value that one step of a net leaves for the next one, w0.

    load    y0 = w0        store   w0 = x0
    """

    x: Tensor
