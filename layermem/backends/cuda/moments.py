"""Moments of a channel in units of rows (cuda/moments.cuh): from memory, or by the epilogue of conv_fprop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from layermem.backends.cuda.base import FLOAT
from layermem.backends.cuda.channel_sums import Columns
from layermem.backends.cuda.launch import THREADS, Launch, ceil_div, launch
from layermem.ops import MOMENTS_ROWS
from layermem.utils.units import aligned

MOMENTS = 2  # numbers of a channel and unit: mean, M2
UNIT_LINES = 8  # threads along the rows of a unit, as in cuda/batch_norm.cuh


@dataclass(frozen=True)
class Units(Columns):
    """Columns whose parts are units of rows; what slices leave open are the rows of a unit."""

    @property
    def rows_each(self) -> int:
        return MOMENTS_ROWS

    @property
    def nbytes(self) -> int:
        """Of the moments of all units."""
        return FLOAT * MOMENTS * self.parts * self.columns

    def carry_bytes(self, terms: int = MOMENTS) -> int:
        _, open_rows = self.carried(0, terms)
        return open_rows + aligned(FLOAT * MOMENTS_ROWS * self.columns) * self.leaves_part


def batch_moments(at: Units, x: int, memory: int, suffix: str = "") -> Iterator[Launch]:
    """The moments of the units at hand, in `memory`; in a slice that is what slices carry.  `suffix`: as CudaCall has
    it."""
    parts, open_rows = at.carried(memory, MOMENTS) if at.here else (memory, 0)
    each = THREADS // UNIT_LINES // at.lanes  # units of a block
    for (across, units), struct in at.runs(open_rows):
        yield launch(
            "normalization", f"batch_moments_v{at.v}{suffix}", "MomentsArgs", across * ceil_div(units, each),
            parts=parts, x=x, at=struct, across=across, units=units,
        )  # fmt: skip
