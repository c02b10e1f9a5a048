"""Sums per channel over everything else (cuda/channel_sums.cuh), and their split into parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from layermem.backends.cuda.base import FLOAT
from layermem.backends.cuda.launch import THREADS, Launch, ceil_div, divider, launch, vector_width
from layermem.backends.cuda.struct_layout import StructValues
from layermem.ops import Tensor

BLOCKS = 256  # that keep a GPU busy, nearly twice its multiprocessors
MIN_ROWS = 8  # that a lane sums before the rows are split further
MAX_LANES = 32  # across the columns


@dataclass(frozen=True)
class Columns:
    """A blob [outer][columns][inner], whose outer x inner rows are split into parts by its shape alone."""

    outer: int
    columns: int
    inner: int = 1
    pitch: int = 0  # columns in memory, where these are not all

    @classmethod
    def of(cls, tensor: Tensor, axis: int = 1) -> Columns:
        """The blob as Caffe's `axis` divides it."""
        return cls(*tensor.around(axis))

    @property
    def rows(self) -> int:
        return self.outer * self.inner

    @property
    def v(self) -> int:
        """Columns that a lane reads at once."""
        return vector_width(self.columns, self.pitch) if self.inner == 1 else 1

    @property
    def lanes(self) -> int:
        """Across the columns; where a channel is contiguous in memory, all lanes run along it."""
        return min(MAX_LANES, 1 << (self.columns // self.v - 1).bit_length()) if self.inner == 1 else 1

    @property
    def rows_each(self) -> int:
        """Rows of a part."""
        across = ceil_div(self.columns, self.lanes * self.v)
        parts = min(BLOCKS // across, self.rows // (THREADS // self.lanes * MIN_ROWS))
        return ceil_div(self.rows, max(1, parts))

    @property
    def parts(self) -> int:
        return max(1, ceil_div(self.rows, self.rows_each)) if self.rows else 1

    def struct(self, rows_each: int | None = None) -> StructValues:
        return {
            "rows": self.rows, "columns": self.columns, "pitch": self.pitch or self.columns, "width": self.lanes,
            "rows_each": rows_each or self.rows_each, "by_inner": divider(self.inner),
        }  # fmt: skip

    def grid(self, parts: int) -> tuple[int, int]:
        return ceil_div(self.columns, self.lanes * self.v), parts

    def part_bytes(self) -> int:
        """Workspace of channel_sums: [parts][columns] floats, none where there is one part."""
        return FLOAT * self.parts * self.columns if self.parts > 1 else 0


def channel_sums(
    at: Columns, y: int, x: int, accumulate: bool, workspace: int, *, kind: str = "", b: int = 0
) -> Iterator[Launch]:
    """y [columns] = or += sums over the rows of x (kind "_product", "_prelu": with b); workspace: at.part_bytes()."""
    if at.parts == 1:
        yield _sum_part(at, kind, y, x, b, accumulate, at.rows, 1)
        return
    yield _sum_part(at, kind, workspace, x, b, False, at.rows_each, at.parts)
    parts = Columns(at.parts, at.columns, pitch=at.columns)
    yield _sum_part(parts, "", y, workspace, 0, accumulate, parts.rows, 1)


def _sum_part(
    at: Columns, kind: str, y: int, x: int, b: int, accumulate: bool, rows_each: int, parts: int
) -> Launch:  # fmt: skip
    return launch(
        "channel_sums", f"channel_sums{kind}_v{at.v}", "ChannelSumsArgs", at.grid(parts), y=y, x=x, b=b,
        at=at.struct(rows_each), accumulate=accumulate,
    )  # fmt: skip
