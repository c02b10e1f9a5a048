"""Losses against targets.  The top is a scalar.

    EuclideanLoss             sum (a - b)^2 / 2 N
    SigmoidCrossEntropyLoss   -sum (t ln s(x) + (1 - t) ln(1 - s(x))) / normalizer,  s the sigmoid
    HingeLoss                 sum max(0, 1 - x_label), max(0, 1 + x_other)  / N   (norm L1; L2 squares each)
    MultinomialLogisticLoss   -sum ln max(p_label, 1e-20) / N
    ContrastiveLoss           sum (same ? d^2 : max(margin - d, 0)^2) / 2 N,  d = |a - b|
                              (legacy_version: max(margin - d^2, 0) for a pair that is not the same)

    SmoothL1Loss              sum w_out f(w_in (a - b)) / N,  f(d) = sigma^2 d^2 / 2 where |d| < 1 / sigma^2,
                              else |d| - 1 / (2 sigma^2);  w_in, w_out the third and fourth bottom

    memory                    stashes nothing; backward reads the bottoms and the scalar dy, which has the loss weight
    source                    Caffe loss_layer.cpp and the layers of these names; SmoothL1Loss smooth_L1_loss_layer.cu
                              of the Fast R-CNN fork (rbgirshick/caffe-fast-rcnn), SmoothL1LossParameter

A label never gets a gradient.  The softmax losses are in softmax.py.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from math import prod
from typing import NamedTuple

from layermem import ops
from layermem.errors import InputError
from layermem.layers.activation import elementwise_overlays
from layermem.layers.base import Layer, Message, Step, Tensor, layer, roles

SCALAR = Tensor(())
L2 = 2  # HingeLossParameter.Norm
NORMALIZATIONS = ("FULL", "VALID", "BATCH_SIZE", "NONE")  # LossParameter.NormalizationMode


class LossNormalization(NamedTuple):
    """Caffe's LossParameter: a label to ignore, and the divisor of the sum (at least 1).

        FULL        every label          VALID  every label that is not ignored
        BATCH_SIZE  items of the batch   NONE   1

    ignore_label  None where every label counts
    normalizer    the divisor; None where labels must be counted first
    """

    ignore_label: int | None
    normalizer: int | None


def read_loss_param(p: Message, items: int, labels: int, default: str) -> LossNormalization:
    ignore_label = p.ignore_label if p.HasField("ignore_label") else None
    mode = default
    if p.HasField("normalization"):
        mode = NORMALIZATIONS[p.normalization]
    elif p.HasField("normalize"):  # older nets
        mode = "VALID" if p.normalize else "BATCH_SIZE"
    if mode == "VALID":
        return LossNormalization(ignore_label, None if ignore_label is not None else labels)
    return LossNormalization(ignore_label, {"FULL": labels, "BATCH_SIZE": items, "NONE": 1}[mode])


def require(condition: bool, layer: Layer, remedy: str) -> None:
    """InputError that names the bottoms and their shapes unless `condition` holds."""
    if not condition:
        shapes = " and ".join(f"'{n}' of shape {x}" for n, x in zip(layer.param.bottom, layer.bottoms, strict=True))
        raise InputError(f"compares {shapes}; {remedy}")


def scalar_loss(layer: Layer, operations: int) -> Step:
    """The forward op of a loss with one top, costing `operations` per element of its first bottom."""
    return Step("forward", roles("x", len(layer.bottoms)), ("y0",), flops=operations * layer.bottoms[0].count)


@layer("EuclideanLoss")
class EuclideanLoss(Layer):
    """The axes of the two bottoms may differ where N and the elements per item agree."""

    bottom_range = (2, 2)
    is_loss = True

    def setup(self) -> None:
        a, b = self.bottoms
        same = bool(a.shape) and a.shape[:1] == b.shape[:1] and a.count == b.count
        require(same, self, "make the batch and the elements per item equal")
        self.tops = (SCALAR,)
        self.record = ops.EuclideanLoss(a, b, items=a.shape[0])

    @property
    def caffe_state_bytes(self) -> int:
        """Bytes of the differences."""
        return self.bottoms[0].nbytes

    def forward(self) -> Step:
        return scalar_loss(self, 3)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        writes = tuple(r for r in ("dx0", "dx1") if r in wants)
        over = ("x0", "x1") if self.bottoms[0].ordered_like(self.bottoms[1]) else ()
        overlays = tuple(o for dx in writes for o in elementwise_overlays(dx, *over))
        flops = 2 * len(writes) * self.bottoms[0].count
        return (Step("backward", ("x0", "x1", "dy0"), writes, overlays=overlays, flops=flops),) if writes else ()


@layer("SmoothL1Loss")
class SmoothL1Loss(Layer):
    """x0 (a), x1 (b), and weights without gradients: x2 inside f, x3 outside.  Fast R-CNN had no fourth bottom at
    first."""

    bottom_range = (2, 4)
    is_loss = True

    def setup(self) -> None:
        a, sigma = self.bottoms[0], self.param.smooth_l1_loss_param.sigma
        same = bool(a.shape) and all(x.shape[:1] == a.shape[:1] and x.ordered_like(a) for x in self.bottoms)
        require(same, self, "make the shapes equal")
        if not (math.isfinite(sigma) and sigma > 0):
            raise InputError(f"has sigma {sigma:g} in its smooth_l1_loss_param; use a number above 0")
        self.tops = (SCALAR,)
        weights = len(self.bottoms) - 2
        self.record = ops.SmoothL1Loss(a, a.shape[0], sigma, inside=weights > 0, outside=weights > 1)

    @property
    def caffe_state_bytes(self) -> int:
        """Bytes of differences, errors and ones."""
        return 3 * self.bottoms[0].nbytes

    def forward(self) -> Step:
        return scalar_loss(self, 6)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        writes = tuple(r for r in ("dx0", "dx1") if r in wants)
        reads = roles("x", len(self.bottoms))
        overlays = tuple(o for dx in writes for o in elementwise_overlays(dx, *reads))
        flops = 6 * len(writes) * self.bottoms[0].count
        return (Step("backward", (*reads, "dy0"), writes, overlays=overlays, flops=flops),) if writes else ()


@layer("SigmoidCrossEntropyLoss")
class SigmoidCrossEntropyLoss(Layer):
    """x0 scores, x1 targets of the same count; a target whose integer part is ignore_label does not count."""

    deploys_as = "Sigmoid"
    bottom_range = (2, 2)
    is_loss = True

    def setup(self) -> None:
        x, t = self.bottoms
        same = bool(x.shape) and x.shape[:1] == t.shape[:1] and x.count == t.count
        require(same, self, "make the batch and the elements per item equal")
        normalization = read_loss_param(self.param.loss_param, x.shape[0], x.count, default="BATCH_SIZE")
        self.tops = (SCALAR,)
        self.record = ops.SigmoidCrossEntropyLoss(x, t, *normalization)

    @property
    def caffe_state_bytes(self) -> int:
        """Bytes of the probabilities."""
        return self.bottoms[0].nbytes

    def forward(self) -> Step:
        return scalar_loss(self, 12)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        if "dx0" not in wants:
            return ()
        x1 = ("x1",) if self.bottoms[0].ordered_like(self.bottoms[1]) else ()
        overlays = elementwise_overlays("dx0", "x0", *x1)
        flops = 10 * self.bottoms[0].count
        return (Step("backward", ("x0", "x1", "dy0"), ("dx0",), overlays=overlays, flops=flops),)


class ItemLoss(Layer):
    """x0 [N, C ...] scores of C classes, x1 one label per item."""

    bottom_range = (2, 2)
    is_loss = True
    operations = 2

    def setup(self) -> None:
        x, label = self.bottoms
        require(bool(x.shape) and label.count == x.shape[0], self, "give one label per item of the batch")
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

    def index_limit(self, bottom: int) -> int | None:
        return prod(self.bottoms[0].shape[1:]) if bottom == 1 else None


@layer("HingeLoss")
class HingeLoss(ItemLoss):
    caffe_reads = "x"
    operations = 3

    def _record(self, x: Tensor) -> ops.HingeLoss:
        return ops.HingeLoss(x, squared=self.param.hinge_loss_param.norm == L2)


@layer("MultinomialLogisticLoss")
class MultinomialLogisticLoss(ItemLoss):
    caffe_reads = "x"

    def _record(self, x: Tensor) -> ops.MultinomialLogisticLoss:
        return ops.MultinomialLogisticLoss(x)


@layer("ContrastiveLoss")
class ContrastiveLoss(Layer):
    """x0, x1 [N, C] pairs, x2 [N] not 0 where a pair is the same."""

    compared_bottoms = 2
    bottom_range = (3, 3)
    is_loss = True

    def setup(self) -> None:
        a, b, same = self.bottoms
        flat = len(a.shape) >= 2 and prod(a.shape[2:]) == 1
        require(flat and a.shape[:2] == b.shape[:2] and a.count == b.count, self, "give two bottoms of N x C")
        require(same.count == a.shape[0], self, "give one number per pair in the third")
        p = self.param.contrastive_loss_param
        self.tops = (SCALAR,)
        self.record = ops.ContrastiveLoss(a, b, a.shape[0], p.margin, p.legacy_version)

    @property
    def caffe_state_bytes(self) -> int:
        """Bytes of the differences."""
        return self.bottoms[0].nbytes

    def forward(self) -> Step:
        return scalar_loss(self, 3)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        writes = tuple(r for r in ("dx0", "dx1") if r in wants)
        overlays = tuple(o for dx in writes for o in elementwise_overlays(dx, "x0", "x1"))
        flops = 5 * len(writes) * self.bottoms[0].count
        reads = ("x0", "x1", "x2", "dy0")
        return (Step("backward", reads, writes, overlays=overlays, flops=flops),) if writes else ()

    def index_limit(self, bottom: int) -> int | None:
        return 2 if bottom == 2 else None
