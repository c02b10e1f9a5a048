"""Pooling: the maximum, or the mean, of each window."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import OpRecord, Tensor, Window


@dataclass(frozen=True)
class Pool(OpRecord):
    """x [N,C,H,W] -> y [N,C,Ho,Wo]; `method` is MAX or AVE.

    forward    y0 from x0; MAX writes argmax (index within the window) where it is declared
    backward   dx0 from dy0 and, for MAX, argmax
    """

    method: str
    x: Tensor
    y: Tensor
    rows: Window
    columns: Window

    @property
    def windows(self) -> tuple[Window, Window]:
        return self.rows, self.columns

    @property
    def taps(self) -> int:
        return self.rows.kernel * self.columns.kernel
