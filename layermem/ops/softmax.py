"""Scores of classes along one axis.  In memory x is [outer, classes, inner]; there are outer x inner positions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log

from layermem.ops.base import MIXES, PIECES, Along, BatchSlice, OpRecord, ReadsLabels, Tensor, loss_over_items

SMALLEST_SHARE = 1e-20  # that InfogainLoss takes the logarithm of: Caffe's kLOG_THRESHOLD
LARGEST_LOSS = 126 * log(2)  # of one label: -log(FLT_MIN), as Caffe takes no share below FLT_MIN


@dataclass(frozen=True)
class Scores(OpRecord):
    """`x` with its classes along axis `along`."""

    x: Tensor
    along: int

    @property
    def outer(self) -> int:
        return self.x.around(self.along)[0]

    @property
    def classes(self) -> int:
        return self.x.shape[self.along]

    @property
    def inner(self) -> int:
        return self.x.around(self.along)[2]

    @property
    def positions(self) -> Tensor:
        """One number per position, in the order of their memory."""
        return Tensor((*self.x.shape[: self.along], 1, *self.x.shape[self.along + 1 :]))


@dataclass(frozen=True)
class Softmax(Scores):
    """forward   y0 from x0        backward   dx0 from y0, dy0"""

    def over_items(self, step: str) -> Along:
        return PIECES if self.along else MIXES


@dataclass(frozen=True)
class SoftmaxLoss(Scores, ReadsLabels):
    """forward   y0 (loss) [, y1 the softmax] from x0, x1 (labels)      backward   dx0 from x0, x1, dy0

    The loss of one label is at most LARGEST_LOSS; its gradient is that of the loss without this limit.
    normalizer   the loss is divided by it; None: by the number of labels that count
    """

    label: Tensor
    ignore_label: int | None
    normalizer: int | None

    @property
    def labels_in_order(self) -> bool:
        """Whether the labels lie in memory as the positions do."""
        return self.label.ordered_like(self.positions)

    def over_items(self, step: str) -> Along:
        return loss_over_items(step, self.normalizer) if self.along else MIXES

    def of_slice(self, part: BatchSlice, whole: SoftmaxLoss) -> SoftmaxLoss:
        return replace(self, part=part, normalizer=whole.normalizer)


@dataclass(frozen=True)
class InfogainLoss(Scores, ReadsLabels):
    """x2 is a matrix [classes, classes]: what each class counts where the label is the row's.

    forward   y0 (loss) [, y1 the softmax] from x0, x1 (labels), x2      backward   dx0 from x0, x1, x2, dy0
    The logarithm is taken of a share of at least SMALLEST_SHARE.  normalizer as in SoftmaxLoss
    """

    label: Tensor
    ignore_label: int | None
    normalizer: int | None

    @property
    def labels_in_order(self) -> bool:
        return self.label.ordered_like(self.positions)

    def over_items(self, step: str) -> Along:
        return loss_over_items(step, self.normalizer) if self.along else MIXES

    def of_slice(self, part: BatchSlice, whole: InfogainLoss) -> InfogainLoss:
        return replace(self, part=part, normalizer=whole.normalizer)


@dataclass(frozen=True)
class Accuracy(Scores, ReadsLabels):
    """forward   y0 (share of labels among the top_k scores) [, y1 per class] from x0, x1 (labels)"""

    label: Tensor
    ignore_label: int | None
    top_k: int

    @property
    def labels_in_order(self) -> bool:
        return self.label.ordered_like(self.positions)
