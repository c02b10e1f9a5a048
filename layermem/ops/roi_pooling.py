"""RoiPool and PsRoiPool: the maxima, or the means, of a grid of windows over each region of interest."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import ReadsLabels, Tensor


class ReadsRegions(ReadsLabels):
    """An op that reads regions of interest, each in one item of its bottom."""

    x: Tensor

    @property
    def classes(self) -> int:
        """The number of items in which a region may lie."""
        return int(self.x.shape[0])

    def bad_label(self, label: str) -> str:
        return (
            f"reads a region of interest in image {label}, but has {self.classes} images: 0 to {self.classes - 1}; "
            "fix the data"
        )


@dataclass(frozen=True)
class RoiPool(ReadsRegions):
    """x [N,C,H,W], rois [R,..] of 5 numbers each (item, x1, y1, x2, y2 in pixels of the image) -> y [R,C,Ho,Wo].

    spatial_scale   pixels of x in one of the image

    forward    y0 from x0, x1 (rois); writes argmax (row W + column in x, -1 of an empty window) where it is declared
    backward   dx0 from x1, dy0, argmax
    """

    x: Tensor
    rois: Tensor
    y: Tensor
    spatial_scale: float


@dataclass(frozen=True)
class PsRoiPool(ReadsRegions):
    """x [N, K g g, H, W], rois as in RoiPool -> y [R,K,g,g]: channel k of window (i, j) is the mean of channel
    (k g + i) g + j of x, 0 where the window is empty.

    forward    y0 from x0, x1 (rois)        backward   dx0 from x1, dy0
    """

    x: Tensor
    rois: Tensor
    y: Tensor
    spatial_scale: float

    @property
    def grid(self) -> int:
        return self.y.shape[2]
