"""PriorBox: the default boxes of a map of scores."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import OpRecord, Tensor


@dataclass(frozen=True)
class PriorBox(OpRecord):
    """y0 [1, 2, rows columns boxes 4]: for each pixel and each of `sizes` (left, top, right, bottom) in images, then
    the four variances.  It depends on shapes alone.

    sizes       (width, height) in pixels of the image
    step        (down, right): pixels of the image from one center to the next; the first lies `offset` steps in
    image       (height, width)

    forward   y0
    """

    rows: int
    columns: int
    sizes: tuple[tuple[float, float], ...]
    step: tuple[float, float]
    offset: float
    image: tuple[int, int]
    clip: bool
    variance: tuple[float, float, float, float]

    @property
    def y(self) -> Tensor:
        return Tensor((1, 2, self.rows * self.columns * len(self.sizes) * 4))
