"""Losses against targets.  The top is a scalar; dy0 carries the loss weight."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from layermem.ops.base import LOSS, PIECES, Along, BatchSlice, OpRecord, ReadsLabels, Tensor, loss_over_items


@dataclass(frozen=True)
class EuclideanLoss(OpRecord):
    """forward   y0 from x0 (a), x1 (b)      backward   dx0, dx1 from x0, x1, dy0;   items: N"""

    a: Tensor
    b: Tensor
    items: int

    def over_items(self, step: str) -> Along:
        return LOSS if step == "forward" else PIECES

    def of_slice(self, batch_slice: BatchSlice, whole: EuclideanLoss) -> EuclideanLoss:
        return replace(self, batch_slice=batch_slice, items=whole.items)


@dataclass(frozen=True)
class SmoothL1Loss(OpRecord):
    """y0 = sum w_out f(w_in (a - b)) / items:  f(d) = sigma^2 d^2 / 2 where |d| < 1 / sigma^2, else |d| - 1 / 2 sigma^2

    inside, outside   whether there are w_in, x2, and w_out, x3

    forward   y0 from x0 (a), x1 (b), x2, x3      backward   dx0, dx1 from these and dy0
    """

    x: Tensor
    items: int
    sigma: float
    inside: bool
    outside: bool

    def over_items(self, step: str) -> Along:
        return LOSS if step == "forward" else PIECES

    def of_slice(self, batch_slice: BatchSlice, whole: SmoothL1Loss) -> SmoothL1Loss:
        return replace(self, batch_slice=batch_slice, items=whole.items)


@dataclass(frozen=True)
class SigmoidCrossEntropyLoss(OpRecord):
    """forward   y0 from x0, x1 (targets)     backward   dx0 from x0, x1, dy0;   normalizer as in SoftmaxLoss"""

    x: Tensor
    target: Tensor
    ignore_label: int | None
    normalizer: int | None

    def over_items(self, step: str) -> Along:
        return loss_over_items(step, self.normalizer)

    def of_slice(self, batch_slice: BatchSlice, whole: SigmoidCrossEntropyLoss) -> SigmoidCrossEntropyLoss:
        return replace(self, batch_slice=batch_slice, normalizer=whole.normalizer)


@dataclass(frozen=True)
class ItemLoss(ReadsLabels):
    """x0 [items, classes] against x1, one label per item.    forward   y0      backward   dx0 from x0, x1, dy0"""

    x: Tensor

    @property
    def items(self) -> int:
        return self.x.shape[0]

    @property
    def classes(self) -> int:
        """Number of elements of one item."""
        return prod(self.x.shape[1:])

    def over_items(self, step: str) -> Along:
        return LOSS if step == "forward" else PIECES


@dataclass(frozen=True)
class HingeLoss(ItemLoss):
    """squared: norm L2"""

    squared: bool


@dataclass(frozen=True)
class MultinomialLogisticLoss(ItemLoss):
    pass


@dataclass(frozen=True)
class ContrastiveLoss(OpRecord):
    """forward   y0 from x0 (a), x1 (b) [items, C], x2 [items] (same pair?)   backward   dx0, dx1 from these and dy0"""

    a: Tensor
    b: Tensor
    items: int
    margin: float
    legacy: bool

    @property
    def item_size(self) -> int:
        return self.a.count // self.items

    def over_items(self, step: str) -> Along:
        return LOSS if step == "forward" else PIECES
