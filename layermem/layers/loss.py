"""Losses against targets: what a net is trained to make small.  The top is a scalar.

    EuclideanLoss             sum (a - b)^2 / 2 N
    SigmoidCrossEntropyLoss   -sum (t ln s(x) + (1 - t) ln(1 - s(x))) / normalizer,  s the sigmoid
    HingeLoss                 sum max(0, 1 - x_label), max(0, 1 + x_other)  / N   (norm L1; L2 squares each)
    MultinomialLogisticLoss   -sum ln max(p_label, 1e-20) / N
    ContrastiveLoss           sum (same ? d^2 : max(margin - d, 0)^2) / 2 N,  d = |a - b|
                              (legacy_version: max(margin - d^2, 0) for a pair that is not the same)

Backward reads the bottoms and the scalar dy, which has the loss weight in it.  A label never gets a gradient.
The softmax losses are in softmax.py.    source  Caffe loss_layer.cpp and the layers of these names
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from typing import Any

from layermem import ops
from layermem.errors import InputError
from layermem.layers.activation import elementwise_overlays
from layermem.layers.base import Layer, Step, Tensor, layer, roles

SCALAR = Tensor(())
NORMALIZATIONS = ("FULL", "VALID", "BATCH_SIZE", "NONE")  # LossParameter.NormalizationMode


class Normalized(Layer):
    """A loss with Caffe's LossParameter: labels to ignore, and what the sum is divided by (at least 1).

        FULL        every label          VALID  every label that is not ignored
        BATCH_SIZE  items of the batch   NONE   1

    ignore_label  a label that counts for nothing, or None
    normalizer    what the sum is divided by; None where labels must be counted first
    """

    ignore_label: int | None
    normalizer: int | None

    def read_loss_param(self, items: int, labels: int, default: str) -> None:
        p = self.param.loss_param
        self.ignore_label = p.ignore_label if p.HasField("ignore_label") else None
        mode = default
        if p.HasField("normalization"):
            mode = NORMALIZATIONS[p.normalization]
        elif p.HasField("normalize"):  # of older nets
            mode = "VALID" if p.normalize else "BATCH_SIZE"
        if mode == "VALID":
            self.normalizer = None if self.ignore_label is not None else labels
        else:
            self.normalizer = {"FULL": labels, "BATCH_SIZE": items, "NONE": 1}[mode]


def require(good: bool, it: Layer, remedy: str) -> None:
    if not good:
        shapes = " and ".join(f"'{n}' of shape {x}" for n, x in zip(it.param.bottom, it.bottoms, strict=True))
        raise InputError(f"compares {shapes}; {remedy}")


def scalar_loss(it: Layer, operations: int) -> Step:
    """The forward op of a loss with one top, costing `operations` per element of its first bottom."""
    return Step("forward", roles("x", len(it.bottoms)), ("y0",), flops=operations * it.bottoms[0].count)


@layer("EuclideanLoss")
class EuclideanLoss(Layer):
    """items: N.  The bottoms may name their axes differently, if they agree in N and in elements per item."""

    bottom_range = (2, 2)
    is_loss = True

    def setup(self) -> None:
        a, b = self.bottoms
        same = bool(a.shape) and a.shape[:1] == b.shape[:1] and a.count == b.count
        require(same, self, "make the batch and the elements per item equal")
        self.items = a.shape[0]
        self.tops = (SCALAR,)
        self.record = ops.EuclideanLoss(a, b, self.items)

    def forward(self) -> Step:
        return scalar_loss(self, 3)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        writes = tuple(r for r in ("dx0", "dx1") if r in wants)
        over = ("x0", "x1") if self.bottoms[0].ordered_like(self.bottoms[1]) else ()
        overlays = tuple(o for dx in writes for o in elementwise_overlays(dx, *over))
        flops = 2 * len(writes) * self.bottoms[0].count
        return (Step("backward", ("x0", "x1", "dy0"), writes, overlays=overlays, flops=flops),) if writes else ()


@layer("SigmoidCrossEntropyLoss")
class SigmoidCrossEntropyLoss(Normalized):
    """x0 scores, x1 targets of as many elements; a target whose whole part is ignore_label is left out."""

    bottom_range = (2, 2)
    is_loss = True

    def setup(self) -> None:
        x, t = self.bottoms
        same = bool(x.shape) and x.shape[:1] == t.shape[:1] and x.count == t.count
        require(same, self, "make the batch and the elements per item equal")
        self.read_loss_param(x.shape[0], x.count, default="BATCH_SIZE")
        self.tops = (SCALAR,)
        self.record = ops.SigmoidCrossEntropyLoss(x, t, self.ignore_label, self.normalizer)

    def forward(self) -> Step:
        return scalar_loss(self, 12)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        if "dx0" not in wants:
            return ()
        x1 = ("x1",) if self.bottoms[0].ordered_like(self.bottoms[1]) else ()
        overlays = elementwise_overlays("dx0", "x0", *x1)
        flops = 10 * self.bottoms[0].count
        return (Step("backward", ("x0", "x1", "dy0"), ("dx0",), overlays=overlays, flops=flops),)


class Labelled(Layer):
    """x0 [N, C ...] scores of C classes, x1 one label per item.  items: N;  classes: elements per item."""

    bottom_range = (2, 2)
    is_loss = True
    operations = 2

    def setup(self) -> None:
        x, label = self.bottoms
        require(bool(x.shape) and label.count == x.shape[0], self, "give one label per item of the batch")
        self.items, self.classes = x.shape[0], prod(x.shape[1:])
        self.tops = (SCALAR,)
        self.record = self._record(x)

    def _record(self, x: Tensor) -> ops.ItemLoss:
        raise NotImplementedError

    def forward(self) -> Step:
        return scalar_loss(self, self.operations)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        if "dx0" not in wants:
            return ()
        overlays = elementwise_overlays("dx0", "x0")
        flops = self.operations * self.bottoms[0].count
        return (Step("backward", ("x0", "x1", "dy0"), ("dx0",), overlays=overlays, flops=flops),)


@layer("HingeLoss")
class HingeLoss(Labelled):
    """squared: norm L2."""

    operations = 3

    @property
    def squared(self) -> bool:
        return bool(self.param.hinge_loss_param.norm == 2)

    def _record(self, x: Tensor) -> ops.HingeLoss:
        return ops.HingeLoss(x, self.squared)


@layer("MultinomialLogisticLoss")
class MultinomialLogisticLoss(Labelled):
    def _record(self, x: Tensor) -> ops.MultinomialLogisticLoss:
        return ops.MultinomialLogisticLoss(x)


@layer("ContrastiveLoss")
class ContrastiveLoss(Layer):
    """x0, x1 [N, C] pairs, x2 [N] not 0 where a pair is the same.  items: N;  margin, legacy: see above."""

    bottom_range = (3, 3)
    is_loss = True

    def setup(self) -> None:
        a, b, same = self.bottoms
        flat = len(a.shape) >= 2 and prod(a.shape[2:]) == 1
        require(flat and a.shape[:2] == b.shape[:2] and a.count == b.count, self, "give two bottoms of N x C")
        require(same.count == a.shape[0], self, "give one number per pair in the third")
        p: Any = self.param.contrastive_loss_param
        self.items = a.shape[0]
        self.margin: float = p.margin
        self.legacy: bool = p.legacy_version
        self.tops = (SCALAR,)
        self.record = ops.ContrastiveLoss(a, b, self.items, self.margin, self.legacy)

    def forward(self) -> Step:
        return scalar_loss(self, 3)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        writes = tuple(r for r in ("dx0", "dx1") if r in wants)
        overlays = tuple(o for dx in writes for o in elementwise_overlays(dx, "x0", "x1"))
        flops = 5 * len(writes) * self.bottoms[0].count
        reads = ("x0", "x1", "x2", "dy0")
        return (Step("backward", reads, writes, overlays=overlays, flops=flops),) if writes else ()
