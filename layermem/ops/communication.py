"""Ops that ranks run together (graph/sharing.py): exchange of gradients and weights, and sums over rows.

A parameter's rows lie along axis 0.  Records hold the tensors of all rows and the Ranks, which tell the owner of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from layermem.distributed.ranks import Ranks
from layermem.ops.base import OpRecord, Tensor


def rows_of(tensor: Tensor) -> int:
    """The number of rows of a parameter; a scalar is one row."""
    return tensor.shape[0] if tensor.shape else 1


def elements_per_row(tensor: Tensor) -> int:
    return tensor.count // max(1, rows_of(tensor))


def own_rows(tensor: Tensor, ranks: Ranks) -> Tensor:
    """The tensor of the rows that a rank owns."""
    rows = (len(ranks.own(rows_of(tensor))), *tensor.shape[1:])
    return Tensor(rows, tensor.dtype)


@dataclass(frozen=True)
class Communication(OpRecord):
    """Base of records that run on all ranks at once, in one order.

    bucket    number of the op among those of its kind, for names in errors
    """

    ranks: Ranks
    bucket: int
    tensors: tuple[Tensor, ...]

    @cached_property
    def bounds(self) -> tuple[tuple[int, ...], ...]:
        """Per tensor: the element at which the rows of each rank begin, and the number of elements."""
        return tuple(self._bounds_of(tensor) for tensor in self.tensors)

    def _bounds_of(self, tensor: Tensor) -> tuple[int, ...]:
        elements = elements_per_row(tensor)
        return tuple(row * elements for row in self.ranks.bounds(rows_of(tensor)))

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)

    @property
    def network_bytes(self) -> int:
        """Bytes that this rank sends; it receives about the same number."""
        return self.nbytes * (self.ranks.size - 1) // self.ranks.size

    @property
    def messages(self) -> int:
        """Lower bound on the messages that this rank sends one after the other."""
        return self.ranks.size - 1


@dataclass(frozen=True)
class ReduceScatter(Communication):
    """reduce   y0 y1 ..: own rows of the sums over the ranks, in their order, of x0 x1 ..

    continues   the sums start from the old contents of y; otherwise from zero
    """

    continues: bool = False


@dataclass(frozen=True)
class AllGather(Communication):
    """gather    x0 x1 ..: the rows of the other ranks are written next to those of this one
    collect   y0 y1 .., all rows, from x0 x1 .., the rows of each rank
    """


@dataclass(frozen=True)
class RowSquares(OpRecord):
    """forward   y0 [rows] = the sum of squares of each row of x0"""

    x: Tensor

    @property
    def row_elements(self) -> int:
        return elements_per_row(self.x)


@dataclass(frozen=True)
class NormOfRows(OpRecord):
    """forward   y0 = the square root of the sum over all elements of x0 x1 .., in order; their tensors are `rows`"""

    rows: int
