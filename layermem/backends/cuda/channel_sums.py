"""Sums per channel over everything else (cuda/channels.cuh), and how they are cut into parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from layermem.backends.cuda.launch import THREADS, Launch, ceil_div, divider, launch, width
from layermem.layers import Tensor

BLOCKS = 256  # that keep a card busy, nearly twice its multiprocessors
ROWS_A_LANE = 8  # that a lane sums at least before the rows are cut further
FLOAT = 4


@dataclass(frozen=True)
class Columns:
    """A blob [outer][columns][inner], whose outer x inner rows are cut into parts by its shape alone."""

    outer: int
    columns: int
    inner: int = 1
    pitch: int = 0  # columns in memory, where these are not all

    @property
    def rows(self) -> int:
        return self.outer * self.inner

    @property
    def v(self) -> int:
        """Columns that a lane reads at once."""
        return width(self.columns, self.pitch) if self.inner == 1 else 1

    @property
    def lanes(self) -> int:
        """Across the columns; where a channel is a run in memory, all lanes walk along it."""
        return min(32, 1 << (self.columns // self.v - 1).bit_length()) if self.inner == 1 else 1

    @property
    def rows_each(self) -> int:
        across = ceil_div(self.columns, self.lanes * self.v)
        parts = min(BLOCKS // across, self.rows // (THREADS // self.lanes * ROWS_A_LANE))
        return ceil_div(self.rows, max(1, parts))

    @property
    def parts(self) -> int:
        return max(1, ceil_div(self.rows, self.rows_each)) if self.rows else 1

    def struct(self, rows_each: int | None = None) -> Mapping[str, Any]:
        return {
            "rows": self.rows, "columns": self.columns, "pitch": self.pitch or self.columns, "width": self.lanes,
            "rows_each": rows_each or self.rows_each, "by_inner": divider(self.inner),
        }  # fmt: skip

    def grid(self, parts: int) -> tuple[int, int]:
        return ceil_div(self.columns, self.lanes * self.v), parts

    def part_bytes(self, terms: int = 1) -> int:
        """Of the parts' sums, [parts][terms][columns] floats; none where there is one part."""
        return FLOAT * self.parts * terms * self.columns if self.parts > 1 else 0


def columns_of(tensor: Tensor, axis: int = 1) -> Columns:
    """The blob as Caffe's `axis` cuts it."""
    return Columns(*tensor.around(axis))


def channel_sums(
    at: Columns, y: int, x: int, accumulate: bool, workspace: int, *, kind: str = "", b: int = 0
) -> Iterator[Launch]:
    """y [columns] = or += sums over the rows of x (kind "_product", "_prelu": with b); workspace: at.part_bytes()."""
    if at.parts == 1:
        yield _sums(at, kind, y, x, b, accumulate, at.rows, 1)
        return
    yield _sums(at, kind, workspace, x, b, False, at.rows_each, at.parts)
    yield sum_of_parts(at, y, workspace, accumulate)


def sum_of_parts(at: Columns, y: int, parts: int, accumulate: bool, *, terms: int = 1, term: int = 0) -> Launch:
    """y [columns] = or += one term of parts [at.parts][terms][columns]."""
    rows = Columns(at.parts, at.columns, pitch=terms * at.columns)
    return _sums(rows, "", y, parts + FLOAT * term * at.columns, 0, accumulate, rows.rows, 1)


def _sums(at: Columns, kind: str, y: int, x: int, b: int, accumulate: bool, rows_each: int, parts: int) -> Launch:
    return launch(
        "channel_sums", f"channel_sums{kind}_v{at.v}", "ChannelSumsArgs", at.grid(parts), y=y, x=x, b=b,
        at=at.struct(rows_each), accumulate=accumulate,
    )  # fmt: skip
