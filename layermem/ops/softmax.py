"""Scores of classes along one axis.  In memory x is [outer, classes, inner]; there are outer x inner positions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log

from layermem.ops.base import MIXES, PIECES, Along, BatchSlice, OpRecord, ReadsLabels, Tensor, loss_over_items

SMALLEST_SHARE = 1e-20  # lower limit of the logarithm's argument in InfogainLoss: Caffe's kLOG_THRESHOLD
LARGEST_LOSS = 126 * log(2)  # loss of one label: -log(FLT_MIN), because Caffe clips probabilities at FLT_MIN


@dataclass(frozen=True)
class Scores(OpRecord):
    """Base of ops on `x`, whose classes lie along axis `along`."""

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
        """The shape of one number per position, in the order of memory."""
        return Tensor((*self.x.shape[: self.along], 1, *self.x.shape[self.along + 1 :]))


@dataclass(frozen=True)
class Softmax(Scores):
    """forward   y0 from x0        backward   dx0 from y0, dy0"""

    def over_items(self, step: str) -> Along:
        return PIECES if self.along else MIXES


@dataclass(frozen=True)
class SoftmaxLoss(Scores, ReadsLabels):
    """forward   y0 (loss) [, y1 the softmax] from x0, x1 (labels)      backward   dx0 from x0, x1, dy0

    The loss of one label is at most LARGEST_LOSS; the gradient ignores this limit.
    normalizer   the loss is divided by it; None: by the number of labels that count
    """

    label: Tensor
    ignore_label: int | None
    normalizer: int | None

    @property
    def labels_in_order(self) -> bool:
        """Whether the labels lie in memory in the order of the positions."""
        return self.label.ordered_like(self.positions)

    def over_items(self, step: str) -> Along:
        return loss_over_items(step, self.normalizer) if self.along else MIXES

    def of_slice(self, batch_slice: BatchSlice, whole: SoftmaxLoss) -> SoftmaxLoss:
        return replace(self, batch_slice=batch_slice, normalizer=whole.normalizer)


@dataclass(frozen=True)
class InfogainLoss(Scores, ReadsLabels):
    """x2 is a matrix [classes, classes]: row `label` holds the weights of all classes for that label.

    forward   y0 (loss) [, y1 the softmax] from x0, x1 (labels), x2      backward   dx0 from x0, x1, x2, dy0
    Shares are clipped at SMALLEST_SHARE before the logarithm.  normalizer as in SoftmaxLoss
    """

    label: Tensor
    ignore_label: int | None
    normalizer: int | None

    @property
    def labels_in_order(self) -> bool:
        return self.label.ordered_like(self.positions)

    def over_items(self, step: str) -> Along:
        return loss_over_items(step, self.normalizer) if self.along else MIXES

    def of_slice(self, batch_slice: BatchSlice, whole: InfogainLoss) -> InfogainLoss:
        return replace(self, batch_slice=batch_slice, normalizer=whole.normalizer)


@dataclass(frozen=True)
class Accuracy(Scores, ReadsLabels):
    """forward   y0 (share of labels among the top_k scores) [, y1 per class] from x0, x1 (labels)"""

    label: Tensor
    ignore_label: int | None
    top_k: int

    @property
    def labels_in_order(self) -> bool:
        return self.label.ordered_like(self.positions)
