"""Moments of a channel in units of rows (cuda/moments.cuh): from memory, or by the epilogue of conv_fprop; and the sums
of a gradient in such units (cuda/gradient_sums.cuh), from memory, or by the epilogue of conv_dgrad."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from layermem.backends.cuda.base import FLOAT
from layermem.backends.cuda.support.channel_sums import Columns
from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, launch
from layermem.backends.struct_layout import StructValues
from layermem.ops import MOMENTS_ROWS
from layermem.utils.units import aligned

MOMENTS = 2  # numbers of a channel and unit: mean, M2
SUMS = 2  # the sums of dy and of dy y
UNIT_LINES = 8  # threads along the rows of a unit, as in cuda/batch_norm.cuh


@dataclass(frozen=True)
class Units(Columns):
    """Columns whose parts are units of rows; the open part of a slice's carry holds the rows of a unit."""

    @property
    def rows_each(self) -> int:
        return MOMENTS_ROWS

    @property
    def nbytes(self) -> int:
        """Bytes of the moments of all units."""
        return FLOAT * MOMENTS * self.parts * self.columns

    def carry_bytes(self, terms: int = MOMENTS, blobs: int = 1) -> int:
        """Bytes of a carry, including the rows of `blobs` blobs in an open unit."""
        _, open_rows = self.carried(0, terms)
        return open_rows + aligned(FLOAT * blobs * MOMENTS_ROWS * self.columns) * self.leaves_part

    def unit_runs(self, open_rows: int) -> Iterator[tuple[int, StructValues]]:
        """Like runs(): the number of blocks of each launch over the units of this slice, and its struct."""
        each = THREADS // UNIT_LINES // self.lanes  # units of a block
        for (across, units), struct in self.runs(open_rows):
            yield across * ceil_div(units, each), {"at": struct, "across": across, "units": units}


def batch_moments(at: Units, x: int, memory: int, suffix: str = "") -> Iterator[Launch]:
    """Compute the moments of this slice's units into `memory`, the carry of a slice.  `suffix` as in CudaCall."""
    parts, open_rows = at.carried(memory, MOMENTS) if at.here else (memory, 0)
    for blocks, units in at.unit_runs(open_rows):
        yield launch(
            "normalization", f"batch_moments_v{at.v}{suffix}", "MomentsArgs", blocks, base=units, parts=parts, x=x
        )


class NormOperands(NamedTuple):
    """The operands of the gradient of a BatchNorm except dy; factor and bias are set if a Scale follows."""

    x: int
    mean: int
    inv_std: int
    factor: int = 0
    bias: int = 0
    relu: bool = False
    largest_zero: float = 0.0  # as in the record (ops.EndsInRelu)

    @property
    def struct(self) -> StructValues:
        epilogue: StructValues = {
            "factor": self.factor,
            "bias": self.bias,
            "relu": self.relu,
            "largest_zero": self.largest_zero,
        }
        return {"x": self.x, "mean": self.mean, "inv_std": self.inv_std, "epilogue": epilogue}


def gradient_sums(at: Units, dy: int, norm: NormOperands, memory: int, suffix: str = "") -> Iterator[Launch]:
    """Compute the sums of dy and of dy y of the units of this slice, with memory as in batch_moments()."""
    parts, open_rows = at.carried(memory, SUMS) if at.here else (memory, 0)
    for blocks, units in at.unit_runs(open_rows):
        base = {**units, **norm.struct, "parts": parts}
        function = f"gradient_sums_v{at.v}{suffix}"
        yield launch("normalization", function, "GradientSumsArgs", blocks, base=base, dy=dy)
