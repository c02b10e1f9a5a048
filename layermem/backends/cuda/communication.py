"""The kernels of communication: sums of rows, and sums of data from other ranks.

driver/communication.py binds ReduceScatter and AllGather; this file computes the bytes that they need.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from layermem.backends.cuda.base import FLOAT, CudaCall, Workspace, kernel
from layermem.backends.cuda.copy import copy
from layermem.backends.cuda.support.channel_sums import Columns, channel_sums
from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, launch
from layermem.backends.cuda.support.strided_index import strided_index
from layermem.distributed.collectives import PIECE_BYTES, Shard, piece_elements
from layermem.ops import Communication, NormOfRows, ReduceScatter, RowSquares

# -- ReduceScatter and AllGather ---------------------------------------------------------------------------------------


def shards_of(op: Communication) -> list[Shard]:
    """The elements of each rank."""
    return [Shard(op.bounds, rank) for rank in range(op.ranks.size)]


def piece_of(op: Communication) -> int:
    """Elements of the largest piece from one rank to another."""
    return min(piece_elements(op.ranks.size, PIECE_BYTES), max(1, *(shard.elements for shard in shards_of(op))))


class Places(NamedTuple):
    """Bytes from the start of a staging buffer.

    own       data that this rank sends to all, or its part of the sum
    sums      the value that the sum continues, then the sum; `own` if the sum starts with zero
    to, of    the pieces to each of the other ranks (none for a gather), and the pieces from them, in rank order
    """

    own: int
    sums: int
    to: list[int]
    of: list[int]


class Staging:
    """Places of the pieces of an op in host memory: successive rounds alternate between two sets."""

    def __init__(self, op: Communication):
        self.op, self.piece = op, piece_of(op)
        self.elements = [shard.elements for shard in shards_of(op)]
        self.rounds = ceil_div(max(self.elements), self.piece)

    @property
    def nbytes(self) -> int:
        return self._lay_out()[1]

    def places(self, number: int) -> Places:
        """The places of round `number`: no piece is larger than that of the first round in the same set."""
        return self._lay_out()[0][number % 2]

    def _lay_out(self) -> tuple[list[Places], int]:
        sets: list[Places] = []
        end, op = 0, self.op

        def take(elements: int) -> int:
            nonlocal end
            end += elements * FLOAT
            return end - elements * FLOAT

        for number in range(min(self.rounds, 2)):
            counts = [max(0, min(self.piece, elements - number * self.piece)) for elements in self.elements]
            own = counts.pop(op.ranks.rank)
            place = take(own)
            if isinstance(op, ReduceScatter):
                sums = take(own) if op.continues else place
                sets.append(Places(place, sums, [*map(take, counts)], [take(own) for _ in counts]))
            else:
                sets.append(Places(place, place, [], [*map(take, counts)]))
        return sets, end


def reduce_workspace_bytes(op: ReduceScatter) -> int:
    """Bytes of a piece from each other rank, which NCCL receives on the GPU."""
    own = Shard(op.bounds, op.ranks.rank).elements
    return (op.ranks.size - 1) * min(piece_of(op), own) * FLOAT


def ordered_sum(op: ReduceScatter, total: int, own: int, received: int, count: int, pitch: int) -> Launch:
    """Add `count` elements of each rank in rank order; those of other ranks are `pitch` elements apart."""
    return launch(
        "communication",
        "ordered_sum",
        "OrderedSumArgs",
        ceil_div(count, THREADS),
        sum=total,
        own=own,
        received=received,
        count=count,
        pitch=pitch,
        rank=op.ranks.rank,
        ranks=op.ranks.size,
        continues=op.continues,
    )


def note_order(op: Communication, order: int) -> Launch:
    """Write the order of communication, as reference/communication.py does."""
    return launch("fill", "fill", "FillArgs", 1, y=order, count=1, value=op.bucket, accumulate=False)


# -- norms of all gradients, from squares of rows ----------------------------------------------------------------------


@kernel(RowSquares, "forward")
def row_squares(op: RowSquares, call: CudaCall) -> Iterator[Launch]:
    """Use one block per row; its order of additions depends only on the length of the row."""
    rows, terms = op.x.count // op.row_elements, op.row_elements
    yield launch(
        "reduction",
        "reduce_sum_square",
        "ReduceSumArgs",
        rows,
        y=call["y0"],
        x=call["x0"],
        b=0,
        outer=strided_index([(rows, terms)]),
        inner=strided_index([(terms, 1)]),
        terms=terms,
        accumulate=False,
        factor=1.0,
    )


def norm_of_rows_workspace_bytes(op: NormOfRows, roles: Collection[str]) -> int:
    workspace, at = Workspace(), Columns(op.rows, 1)
    for nbytes in (FLOAT * op.rows, FLOAT, at.part_bytes()):
        workspace.take(nbytes)
    return workspace.nbytes


@kernel(NormOfRows, "forward", workspace=norm_of_rows_workspace_bytes)
def norm_of_rows(op: NormOfRows, call: CudaCall) -> Iterator[Launch]:
    """Copy the squares of all rows to one column, sum it, and take the root."""
    workspace, squares = Workspace(call.workspace), call.numbered("x")
    column, count = workspace.take(FLOAT * op.rows), 0
    for i, x in enumerate(squares):
        yield from copy(column + FLOAT * count, x, call.count(f"x{i}"))
        count += call.count(f"x{i}")
    square = workspace.take(FLOAT)
    yield from channel_sums(Columns(count, 1), square, column, False, workspace.next)
    yield launch("update", "square_root", "SquareRootArgs", 1, 1, y=call["y0"], x=square)
