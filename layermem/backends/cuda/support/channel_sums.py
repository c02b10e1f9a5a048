"""Sums per channel over all other axes (cuda/channel_sums.cuh), and their split into parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from layermem.backends.cuda.base import FLOAT
from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, divider, launch, vector_width
from layermem.backends.struct_layout import StructValues
from layermem.ops import BatchSlice, Tensor
from layermem.utils.units import aligned

BLOCKS = 1056  # of a sum with enough rows, on every GPU: eight per multiprocessor of 132
MIN_ROWS = 8  # rows that a thread sums before rows are split further
MAX_LANES = 32  # threads across the columns

C = TypeVar("C", bound="Columns")


@dataclass(frozen=True)
class Columns:
    """A blob [outer][columns][inner], whose outer x inner rows are split into parts by its shape alone.

    first, here   for a slice of the batch, the first of its blocks of `outer` and their number; 0: all blocks
    alike         columns of the whole batch, if these belong to some of its items: rows are split as for the batch
    frames        blobs like this one, one after the other, which channel_sums adds in their order
    """

    outer: int
    columns: int
    inner: int = 1
    pitch: int = 0  # columns in memory; 0: the same as `columns`
    first: int = 0
    here: int = 0
    alike: int = 0
    frames: int = 1

    @classmethod
    def of(cls: type[C], tensor: Tensor, axis: int = 1) -> C:
        """The blob divided at Caffe's `axis`."""
        return cls(*tensor.around(axis))

    def within(self: C, batch_slice: BatchSlice | None) -> C:
        """The blob of the whole batch, of which this blob is a slice."""
        if batch_slice is None:
            return self
        each = self.outer // batch_slice.count
        return replace(self, outer=each * batch_slice.items, first=each * batch_slice.first, here=self.outer)

    @property
    def rows(self) -> int:
        return self.outer * self.inner

    @property
    def v(self) -> int:
        """Columns that a thread reads at once."""
        return vector_width(self.columns, self.pitch) if self.inner == 1 else 1

    @property
    def lanes(self) -> int:
        """Threads across the columns; with several elements per channel in a row, all threads run along these."""
        return min(MAX_LANES, 1 << (self.columns // self.v - 1).bit_length()) if self.inner == 1 else 1

    @property
    def rows_each(self) -> int:
        """Rows of a part."""
        across = self.frames * ceil_div(self.alike or self.columns, self.lanes * self.v)
        parts = min(ceil_div(BLOCKS, across), self.rows // (THREADS // self.lanes * MIN_ROWS))
        return ceil_div(self.rows, max(1, parts))

    @property
    def parts(self) -> int:
        return max(1, ceil_div(self.rows, self.rows_each)) if self.rows else 1

    @property
    def all_parts(self) -> int:
        """Parts of all frames."""
        return self.frames * self.parts

    @property
    def parts_here(self) -> range:
        """Parts that the rows of this slice belong to."""
        if not self.here:
            return range(self.parts)
        begin, end = self.first * self.inner, (self.first + self.here) * self.inner
        return range(begin // self.rows_each, ceil_div(end, self.rows_each))

    @property
    def ends_here(self) -> bool:
        """Whether the rows of this slice are the last."""
        return not self.here or self.first + self.here == self.outer

    def runs(self, open_sums: int) -> list[tuple[tuple[int, int], StructValues]]:
        """Grid and struct of each launch over the rows of this slice.  `open_sums` holds one unfinished part: if an
        earlier slice began one part and the next slice continues another, the first part has its own launch."""
        here = self.parts_here
        begun = self.first * self.inner % self.rows_each != 0
        left = (self.first + self.here) * self.inner % self.rows_each != 0 and not self.ends_here
        runs = [here[:1], here[1:]] if begun and left and len(here) > 1 else [here]
        return [
            ((self.across, len(run)), {**self.struct(), "open": open_sums, "first_part": run.start}) for run in runs
        ]

    def struct(self, rows_each: int | None = None) -> StructValues:
        return {
            "open": 0,
            "rows": self.rows,
            "columns": self.columns,
            "pitch": self.pitch or self.columns,
            "width": self.lanes,
            "rows_each": rows_each or self.rows_each,
            "first": self.first * self.inner,
            "here": (self.here or self.outer) * self.inner,
            "first_part": 0,
            "by_inner": divider(self.inner),
        }

    @property
    def across(self) -> int:
        """Blocks across the columns."""
        return ceil_div(self.columns, self.lanes * self.v)

    def grid(self) -> tuple[int, int]:
        return self.across, self.parts

    def part_bytes(self) -> int:
        """Workspace bytes of channel_sums: [parts][columns] floats; 0 for one part, or if slices carry the sums."""
        return FLOAT * self.all_parts * self.columns if self.all_parts > 1 and not self.here else 0

    def carried(self, address: int, terms: int = 1) -> tuple[int, int]:
        """Addresses of the sums of `terms` terms by part, and of the threads' sums of an open part, in a carry."""
        return address, address + aligned(FLOAT * terms * self.all_parts * self.columns)

    @property
    def leaves_part(self) -> bool:
        """Whether a slice of this size ends within a part."""
        ends = range(self.here, self.outer, self.here) if self.here else ()
        return any(end * self.inner % self.rows_each for end in ends)

    def carry_bytes(self, terms: int = 1) -> int:
        _, open_sums = self.carried(0, terms)
        if self.here and not self.leaves_part:
            return open_sums
        return open_sums + aligned(FLOAT * terms * self.v * THREADS * self.across * self.frames)


def channel_sums(
    at: Columns, y: int, x: int, accumulate: bool, workspace: int, *, kind: str = "", b: int = 0, suffix: str = ""
) -> Iterator[Launch]:
    """y [columns] = or += sums over the rows of x (times b for the kinds "_product" and "_prelu").

    workspace   at.part_bytes() bytes; for a slice of a batch, the carry, and only the last slice writes y
    suffix      as in CudaCall, if x is in 16 bits
    """
    parts, open_sums = at.carried(workspace) if at.here else (workspace, 0)
    one = at.all_parts == 1
    for grid, struct in at.runs(open_sums):
        yield _sum_part(at, kind, y if one else parts, x, b, accumulate and one, (*grid, at.frames), struct, suffix)
    if at.ends_here and not one:
        yield merge_parts(at.all_parts, at.columns, y, parts, accumulate)


def merge_parts(parts: int, columns: int, y: int, x: int, accumulate: bool) -> Launch:
    """y [columns] = or += sums over the rows of x [parts][columns], in one launch."""
    at = Columns(parts, columns)
    lanes = merge_lanes(parts, at.lanes)
    grid = (ceil_div(columns, lanes * at.v), 1)
    return _sum_part(at, "", y, x, 0, accumulate, grid, {**at.struct(max(1, parts)), "width": lanes})


def merge_lanes(parts: int, most: int = MAX_LANES) -> int:
    """Threads across the columns of a block that merges all parts: the fewer, the more threads share the parts, until
    each has at most MIN_ROWS of them."""
    lines = min(THREADS, 1 << max(0, ceil_div(parts, MIN_ROWS) - 1).bit_length())
    return min(most, THREADS // lines)


def _sum_part(
    at: Columns,
    kind: str,
    y: int,
    x: int,
    b: int,
    accumulate: bool,
    grid: tuple[int, ...],
    struct: StructValues,
    suffix: str = "",
) -> Launch:
    return launch(
        "channel_sums",
        f"channel_sums{kind}_v{at.v}{suffix}",
        "ChannelSumsArgs",
        grid,
        y=y,
        x=x,
        b=b,
        at=struct,
        parts=at.parts,
        accumulate=accumulate,
    )
