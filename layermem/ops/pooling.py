"""Pooling: the maximum, or the mean, of each window."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import PerItem, Tensor, Window


@dataclass(frozen=True)
class Pool(PerItem):
    """x [N,C,H,W] -> y [N,C,Ho,Wo]; `method` is MAX or AVE.

    forward    y0 from x0; MAX writes argmax (index within the window) and y1 (index within the plane H x W, the mask of
               Caffe) where they are declared
    backward   dx0 from dy0 and, for MAX, argmax
    """

    method: str
    x: Tensor
    y: Tensor
    rows: Window
    columns: Window

    @property
    def argmax(self) -> Tensor:
        """Tensor of the index, within its window, of each window's element."""
        return self.y.of("uint8" if self.taps <= 256 else "int32")

    @property
    def indices(self) -> tuple[str, ...]:
        return ("y1",)

    @property
    def windows(self) -> tuple[Window, Window]:
        return self.rows, self.columns

    @property
    def taps(self) -> int:
        return self.rows.kernel * self.columns.kernel


@dataclass(frozen=True)
class StochasticPool(Pool):
    """Draws one element of each window with a probability proportional to it; `method` is STOCHASTIC.

    forward    y0 from x0; writes argmax where it is declared.  The gradient is computed as for MAX
    stream     second word of the generator's key, by layer (see Dropout)
    average    TEST phase: the mean that these probabilities give, sum x^2 / sum x
    """

    stream: int = 0
    average: bool = False
