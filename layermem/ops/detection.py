"""Detection: predicted boxes against true ones.  A box is (left, top, right, bottom) in images."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import OpRecord, Tensor

TRUTH = 8  # numbers of a row of truth: item, label, instance, left, top, right, bottom, difficult
UNUSED = -1  # the item of a row that holds no box

# of a prior in the stash `match`, beside rows of truth from 0 on
UNMATCHED, IGNORED, NEGATIVE = -1, -2, -3


@dataclass(frozen=True)
class Suppression:
    """Non-maximum suppression: of boxes that overlap by more than `threshold`, the best of the `top_k` best stays."""

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
    in_target      variances divide the difference of codes, instead of being a part of the code

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
