"""YOLO: the predictions of a grid of cells.

A prediction has 5 + classes numbers: x, y, w, h, objectness and a score for each class.  In cell (i, j) of a grid of
`side` cells along each axis, for an anchor (a, b), it is the box

    center (i + sigmoid(x)) / side, (j + sigmoid(y)) / side      size exp(w) a / divisor, exp(h) b / divisor

in fractions of the image; the objectness is a sigmoid.  The channels hold a cell's predictions by anchor.
"""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import OpRecord, Tensor
from layermem.ops.detection import DETECTION

GRID_BOX = 5  # numbers of a prediction before its classes
GRID_TRUTH = 5  # numbers of a row of truth: label, x and y of the center, width, height
Anchors = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class RegionLoss(OpRecord):
    """The squares of the gradients of all predictions, by darknet's rule (layers/yolo.py).

    x0 [items, anchors (5 + classes), side, side], x1 [items, rows, 5] as GRID_TRUTH says; the first row of width 0
    ends those of its item.  Anchors are in cells: the divisor is `side`

    threshold   a prediction that overlaps a true box by more is no background
    rescore     the target of objectness is the overlap, otherwise 1
    bias_match  a true box takes the most similar anchor, otherwise the most similar prediction
    warm_up     steps in which predictions without a true box are drawn to their anchors

    forward    y0 from x0, x1
    backward   dx0 from x0, x1, dy0
    """

    items: int
    side: int
    anchors: Anchors
    classes: int
    rows: int
    object_scale: float
    noobject_scale: float
    class_scale: float
    coord_scale: float
    threshold: float
    rescore: bool
    bias_match: bool
    warm_up: int

    @property
    def numbers(self) -> int:
        """Numbers of one prediction."""
        return GRID_BOX + self.classes


@dataclass(frozen=True)
class GridLoss(OpRecord):
    """The squares of the gradients of the predictions of one of several grids, by darknet's rule (layers/yolo.py).

    x0 [items, mask (5 + classes), side, side], x1 [items, rows, 5] as in RegionLoss

    anchors    anchors of all grids; `mask`: the indices of those of this grid
    threshold  a prediction that overlaps a true box by more is no background
    logistic   the gradient is that of squares, otherwise of cross entropies

    forward    y0 from x0, x1
    backward   dx0 from x0, x1, dy0
    """

    items: int
    side: int
    anchors: Anchors
    mask: tuple[int, ...]
    divisor: float
    classes: int
    rows: int
    object_scale: float
    class_scale: float
    coord_scale: float
    threshold: float
    logistic: bool

    @property
    def numbers(self) -> int:
        """Numbers of one prediction."""
        return GRID_BOX + self.classes


@dataclass(frozen=True)
class GridDetections(OpRecord):
    """Boxes of the highest scores of several grids, without those that a better one of their item overlaps.

    x0, x1, .. [items, anchors (5 + classes), side, side] -> y0 [items of_item, 7] as DETECTION of ops/detection.py
    says, labels from 1 on: the rows that hold a box, by item and score, then rows of UNUSED

    sides, anchors, divisors   one per bottom
    softmax                    scores of classes are a softmax, and least_score may be reached; else each is a sigmoid,
                               and above least_score

    forward   y0
    """

    items: int
    classes: int
    sides: tuple[int, ...]
    anchors: tuple[Anchors, ...]
    divisors: tuple[float, ...]
    softmax: bool
    least_score: float
    threshold: float

    @property
    def of_item(self) -> int:
        """Number of predictions of an item, each of which can be a row."""
        return sum(side * side * len(anchors) for side, anchors in zip(self.sides, self.anchors, strict=True))

    @property
    def y(self) -> Tensor:
        return Tensor((1, 1, self.items * self.of_item, DETECTION))
