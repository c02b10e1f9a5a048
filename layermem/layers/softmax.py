"""Scores of classes along one axis: what is read from them.

    Softmax          y = exp(x) / sum exp(x) along `axis` (1)                    backward reads y, dy
    SoftmaxWithLoss  -sum ln softmax(x)_label / normalizer; a second top is
                     the softmax itself, through which no gradient flows         backward reads x, label, dy
    Accuracy         the share of labels among the top_k (1) scores; a second
                     top gives it per class                                      has no gradient

For N x C x H x W scores with axis 1 there are N x H x W labels, one per place.
SoftmaxWithLoss takes the logarithm before rounding (log-sum-exp), so that no score is too low for it; Caffe's loss of
one label ends at 87.3.  Its normalization is VALID unless the net says otherwise.
source  Caffe softmax_layer.cpp, softmax_loss_layer.cpp, accuracy_layer.cpp
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from layermem import ops
from layermem.errors import InputError
from layermem.layers.activation import elementwise_overlays
from layermem.layers.base import Layer, Overlay, Step, Tensor, layer, roles
from layermem.layers.loss import SCALAR, Normalized, require


class Scores(Layer):
    """along: the axis of the classes.  In memory x0 is [outer, classes, inner], and positions [outer, inner].

    labels_in_order: the labels lie in memory as the positions do (so it is unless their shape is unusual).
    """

    def read_scores(self, axis: int) -> None:
        self.along = self.axis(axis)
        self.outer, self.classes, self.inner = self.bottoms[0].around(self.along)

    def read_labels(self) -> None:
        x, label = self.bottoms
        positions = Tensor((*x.shape[: self.along], 1, *x.shape[self.along + 1 :]))
        require(
            label.count == positions.count, self, f"give one label per position: {positions} with axis {self.along}"
        )
        self.labels_in_order = label.ordered_like(positions)


@layer("Softmax")
class Softmax(Scores):
    inplace = True

    def setup(self) -> None:
        self.read_scores(self.param.softmax_param.axis)
        self.tops = self.bottoms
        self.record = ops.Softmax(self.bottoms[0], self.along)

    def forward(self) -> Step:
        overlays = (Overlay("y0", "x0", "forward"),)
        return Step("forward", ("x0",), ("y0",), overlays=overlays, flops=8 * self.tops[0].count)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        if "dx0" not in wants:
            return ()
        overlays = elementwise_overlays("dx0", "dy0", "y0")
        return (Step("backward", ("y0", "dy0"), ("dx0",), overlays=overlays, flops=4 * self.tops[0].count),)


@layer("SoftmaxWithLoss")
class SoftmaxWithLoss(Scores, Normalized):
    bottom_range = (2, 2)
    top_range = (1, 2)
    is_loss = True

    def setup(self) -> None:
        x = self.bottoms[0]
        self.read_scores(self.param.softmax_param.axis)
        self.read_labels()
        self.read_loss_param(prod(x.shape[: self.along]), x.count // self.classes, default="VALID")
        self.tops = (SCALAR, x)[: len(self.param.top)]
        self.record = ops.SoftmaxLoss(x, self.along, self.bottoms[1], self.ignore_label, self.normalizer)

    def forward(self) -> Step:
        writes = roles("y", len(self.tops))
        overlays = (Overlay("y1", "x0", "forward"),) if len(self.tops) > 1 else ()
        return Step("forward", ("x0", "x1"), writes, overlays=overlays, flops=8 * self.bottoms[0].count)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        if "dx0" not in wants:
            return ()
        overlays = elementwise_overlays("dx0", "x0")
        flops = 8 * self.bottoms[0].count
        return (Step("backward", ("x0", "x1", "dy0"), ("dx0",), overlays=overlays, flops=flops),)


@layer("Accuracy")
class Accuracy(Scores):
    """A label counts as found if fewer than top_k other scores are at least its own: ties are misses."""

    bottom_range = (2, 2)
    top_range = (1, 2)

    def setup(self) -> None:
        p = self.param.accuracy_param
        self.read_scores(p.axis)
        self.read_labels()
        self.top_k: int = p.top_k
        self.ignore_label: int | None = p.ignore_label if p.HasField("ignore_label") else None
        if not 1 <= self.top_k <= self.classes:
            raise InputError(f"asks for the top {self.top_k} of {self.classes} classes; use a smaller top_k")
        self.tops = (SCALAR, Tensor((self.classes,)))[: len(self.param.top)]
        self.record = ops.Accuracy(self.bottoms[0], self.along, self.bottoms[1], self.ignore_label, self.top_k)

    def forward(self) -> Step:
        return Step("forward", ("x0", "x1"), roles("y", len(self.tops)), flops=self.bottoms[0].count)
