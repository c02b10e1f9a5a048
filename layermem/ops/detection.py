"""Detection: predicted boxes against true ones.  A box is (left, top, right, bottom) in images."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import OpRecord, Tensor

TRUTH = 8  # numbers of a row of truth: item, label, instance, left, top, right, bottom, difficult
DETECTION = 7  # numbers of a row of detections: item, label, score, left, top, right, bottom
EVALUATION = 5  # numbers of a row of an evaluation: item, label, score, true positive, false positive
ITEM_SIZE = 6  # numbers of an item: left, top, right, bottom of its image, width and height in pixels
UNUSED = -1  # the item of a row that holds no box

# values of a prior in the stash `match`; rows of truth are numbered from 0
UNMATCHED, IGNORED, NEGATIVE = -1, -2, -3


@dataclass(frozen=True)
class Suppression:
    """Non-maximum suppression of the `top_k` best boxes: of two that overlap by more than `threshold`, the better
    stays."""

    threshold: float
    top_k: int


@dataclass(frozen=True)
class MultiBoxLoss(OpRecord):
    """The loss of boxes (locations) and scores (confidences) of `priors` default boxes against true boxes.

    x0 [items, priors, loc_classes, 4], x1 [items, priors, classes], x2 [2, priors, 4] (boxes, variances),
    x3 [rows, 8] as TRUTH says

    match          int32 [items, loc_classes, priors]: the row of truth that a prior is matched to, or UNMATCHED,
                   IGNORED (crosses the image's border), NEGATIVE (chosen to count as background)
    mining         NONE, MAX_NEGATIVE or HARD_EXAMPLE
    code           CORNER, CENTER_SIZE or CORNER_SIZE
    normalizer     the divisor of both sums; None: the matches, at least 1
    loc, conf      whether the sum counts
    bp_inside      corners outside of the image get no gradient
    in_target      variances divide the difference of codes; otherwise they are part of the code

    forward    y0 from x0 to x3; writes match where it is declared
    backward   dx0, dx1 from x0 to x3, dy0, match
    """

    items: int
    priors: int
    classes: int
    loc_classes: int
    rows: int
    per_prediction: bool
    overlap_threshold: float
    prior_matching: bool
    background: int
    difficult: bool
    mining: str
    neg_pos_ratio: float
    neg_overlap: float
    sample_size: int
    suppression: Suppression | None
    prior_suppression: bool
    code: str
    in_target: bool
    agnostic: bool
    ignore_crossing: bool
    bp_inside: bool
    l2: bool
    logistic: bool
    loc_weight: float
    normalizer: int | None
    loc: bool = True
    conf: bool = True

    @property
    def match(self) -> Tensor:
        return Tensor((self.items, self.loc_classes, self.priors), "int32")

    def class_of(self, label: int) -> int:
        """The class whose score a true box of this label should raise."""
        return self.background + 1 if self.agnostic else label


@dataclass(frozen=True)
class DetectionOutput(OpRecord):
    """Boxes of the highest scores, without those that a better one of their class overlaps.

    x0 [items, priors, loc_classes, 4], x1 [items, priors, classes], x2 [2, priors, 4] -> y0 [items of_item, 7] as
    DETECTION says: the rows that hold a box, by item, class and score, then rows of UNUSED

    of_item      rows that are planned for an item: its largest possible number of boxes
    least_score  boxes need a higher score
    top_k        number of scores of a class that are considered, -1: all
    eta          factor of a threshold above 0.5 after each box kept
    keep         largest number of boxes of an item, -1: all
    clip         whether boxes end at the borders of the image

    forward   y0
    """

    items: int
    priors: int
    classes: int
    loc_classes: int
    background: int
    code: str
    in_target: bool
    least_score: float
    threshold: float
    top_k: int
    eta: float
    keep: int
    clip: bool = False

    @property
    def candidates(self) -> int:
        """Number of boxes of a class that can stay."""
        return self.priors if self.top_k < 0 else min(self.top_k, self.priors)

    @property
    def of_item(self) -> int:
        every = self.candidates * (self.classes - (0 <= self.background < self.classes))
        return every if self.keep < 0 else min(self.keep, every)

    @property
    def y(self) -> Tensor:
        return Tensor((1, 1, self.items * self.of_item, DETECTION))


@dataclass(frozen=True)
class DetectionEvaluate(OpRecord):
    """Marks detections as right or wrong: right is the first that overlaps a true box by `overlap_threshold`.

    x0 detections, x1 truth -> y0 as EVALUATION says: for each class but the background a row of (UNUSED, class, true
    boxes, UNUSED, UNUSED), then a row for each detection, then rows of UNUSED

    difficult     whether difficult boxes count; otherwise they and detections of them are neither right nor wrong
    sized_items   number of items whose boxes are compared in pixels, by x2 [items, ITEM_SIZE]: the window of the item
                  that its image fills, and the image's width and height.  0: boxes are compared in fractions

    forward   y0
    """

    detections: int
    truths: int
    classes: int
    background: int
    overlap_threshold: float
    difficult: bool
    sized_items: int = 0

    @property
    def classes_counted(self) -> tuple[int, ...]:
        return tuple(c for c in range(self.classes) if c != self.background)

    @property
    def y(self) -> Tensor:
        return Tensor((1, 1, len(self.classes_counted) + self.detections, EVALUATION))
