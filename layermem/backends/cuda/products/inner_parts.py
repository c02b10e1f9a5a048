"""Inner products of few rows, whose sums are split into parts: a product of 64 rows has so few tiles that most of a GPU
would be idle, however many weights it reads.

    forward   y  = x w'    the columns of x and of w in parts      dgrad   dx = dy w    the rows of w

Each part is a group of a convolution of one pixel.  Its sums go to the workspace, [rows][parts][columns], and sum_parts
(cuda/inner_product.cu) adds them in order and applies the epilogue.

The number of parts depends only on the shape, with the rows of the whole batch: slices of a batch and bands of the
weights have the bits of the whole, and all precisions have the same parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from layermem.backends.cuda.base import FLOAT
from layermem.backends.cuda.products.gemm_tiles import DEPTH, DGRAD, ENGINES, FPROP, VECTOR, GemmEngine, cycles
from layermem.backends.cuda.products.implicit_gemm import NO_EPILOGUE, Epilogue, conv_dgrad, conv_fprop
from layermem.backends.cuda.products.wgrad import ADD_CYCLES, DRAM_RATE, SLACK_DIVISOR
from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, divider, launch, vector_width
from layermem.ops import ConvProblem, InnerProduct, Window

PIXEL = Window(1, 1)
LEAST_DEPTH = 2 * DEPTH  # lower limit of a part
MAX_ROWS = 512  # limit of the weights' rows in a part of dgrad: bands have whole parts


class DepthParts(NamedTuple):
    """A product is split into `number` parts of `depth` each."""

    number: int
    depth: int


@lru_cache(maxsize=4096)
def parts_of(product: str, rows: int, columns: int, depth: int) -> DepthParts:
    """Choose the number of parts: among the divisors of the depth (in units of four) near the least modelled time in
    tf32 of products and additions, the smallest, which needs the least memory."""
    most = max(1, depth // LEAST_DEPTH)
    fewest = ceil_div(depth, MAX_ROWS) if product == DGRAD else 1
    counts = [1, *(count for count in range(max(2, fewest), most + 1) if depth % (count * VECTOR) == 0)]
    spent = {count: _parts_cycles(product, rows, columns, depth, count) for count in counts}
    least = min(spent.values())
    count = next(count for count in counts if spent[count] <= least + least // SLACK_DIVISOR)
    return DepthParts(count, depth // count)


def _parts_cycles(product: str, rows: int, columns: int, depth: int, count: int) -> int:
    """Modelled cycles of a product in tf32 and its addition, at least those of its reads."""
    engine, reads = ENGINES["tf32"], FLOAT * (rows + columns) * depth // DRAM_RATE
    tiles = engine.own_tiles(product, vector_width(columns, depth))
    own = min(cycles(engine, tile, (rows, columns, count), depth // count) for tile in tiles)
    add = ADD_CYCLES + FLOAT * (2 * count + 1) * rows * columns // DRAM_RATE if count > 1 else 0
    return max(reads, own) + add


def has_parts(op: InnerProduct) -> bool:
    """Whether the products may be split: their result must lie in memory as conv_fprop and conv_dgrad write it."""
    return not op.transpose and not op.y.interleaved


def whole_rows(op: InnerProduct) -> int:
    """Rows of all items of the batch."""
    return op.rows if op.batch_slice is None else op.rows // op.batch_slice.count * op.batch_slice.items


def forward_parts(op: InnerProduct) -> DepthParts:
    if not has_parts(op):
        return DepthParts(1, op.inner)
    return parts_of(FPROP, whole_rows(op), op.dy_outputs, op.inner)


def dgrad_parts(op: InnerProduct) -> DepthParts:
    """The parts over the rows of all bands of the weights."""
    if not has_parts(op):
        return DepthParts(1, op.dy_outputs)
    return parts_of(DGRAD, whole_rows(op), op.inner, op.dy_outputs)


def forward_parts_bytes(op: InnerProduct) -> int:
    """Bytes of the workspace of the parts."""
    return _parts_bytes(op.rows, op.outputs, forward_parts(op).number)


def dgrad_parts_bytes(op: InnerProduct) -> int:
    parts = dgrad_parts(op)
    return _parts_bytes(op.rows, op.inner, parts_here(op, parts) if parts.number > 1 else 1)


def _parts_bytes(rows: int, columns: int, count: int) -> int:
    return FLOAT * rows * count * columns if count > 1 else 0


def parts_here(op: InnerProduct, parts: DepthParts) -> int:
    """The number of dgrad's parts in this band of the weights; Device.row_bands makes bands of whole parts."""
    return ceil_div(op.outputs, parts.depth)


def fprop_in_parts(
    engine: GemmEngine, op: InnerProduct, y: int, x: int, weights: int, epilogue: Epilogue, workspace: int
) -> Iterator[Launch]:
    count, depth = forward_parts(op)
    problem = ConvProblem(op.rows, op.inner, count * op.outputs, PIXEL, PIXEL, count)
    assert problem.c == count * depth
    yield conv_fprop(engine, problem, workspace, x, weights, filter_pitch=op.inner)
    yield sum_parts(op.rows, op.outputs, count, y, workspace, epilogue)


def dgrad_in_parts(
    engine: GemmEngine, op: InnerProduct, dx: int, dy: int, weights: int, workspace: int, *, accumulate: bool
) -> Iterator[Launch]:
    """`dy` is the address of the columns of this band, if there is one.  A later band continues the sums in dx."""
    parts = dgrad_parts(op)
    count = parts_here(op, parts)
    problem = ConvProblem(op.rows, count * op.inner, op.outputs, PIXEL, PIXEL, count)
    resume = op.band is not None and not op.band.is_first
    yield conv_dgrad(engine, problem, workspace, dy, weights, maps_pitch=0 if op.band is None else op.band.rows)
    epilogue = Epilogue(residual=dx) if accumulate and op.band is None else NO_EPILOGUE
    yield sum_parts(op.rows, op.inner, count, dx, workspace, epilogue, sum_before=dx if resume else 0)


def sum_parts(
    rows: int, columns: int, count: int, y: int, parts: int, epilogue: Epilogue, *, sum_before: int = 0
) -> Launch:
    """y = `sum_before`, if there is one, plus `count` parts in order, with the epilogue."""
    v = vector_width(columns)
    return launch(
        "inner_product",
        f"sum_parts_v{v}",
        "SumPartsArgs",
        ceil_div(rows * columns, THREADS * v),
        y=y,
        sum_before=sum_before,
        parts=parts,
        epilogue=epilogue._asdict(),
        by_columns=divider(columns),
        count=rows * columns,
        splits=count,
    )
