"""Scores of classes along one axis: their softmax, its loss, and the accuracy.

    Softmax          y = exp(x) / sum exp(x) along `axis` (1)                    backward reads y, dy
    SoftmaxWithLoss  -sum ln softmax(x)_label / normalizer; a second top is
                     the softmax itself, through which no gradient flows         backward reads x, label, dy
    InfogainLoss     -sum over c of H[label, c] ln softmax(x)_c,
                     / normalizer; a second top as above           backward reads x, label, H, dy
    Accuracy         the share of labels among the top_k (1) scores; a second
                     top gives it per class                                      has no gradient

memory  none stashes anything; the losses recompute the softmax from x in backward
source  Caffe softmax_layer.cpp, softmax_loss_layer.cpp, infogain_loss_layer.cpp, accuracy_layer.cpp

For N x C x H x W scores with axis 1 there are N x H x W labels, one per position.
SoftmaxWithLoss takes the logarithm before rounding (log-sum-exp); the loss of one label saturates at 87.3, as in
Caffe, but its gradient does not.  Its default normalization is VALID.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from layermem import ops
from layermem.errors import InputError
from layermem.layers.activation import elementwise_overlays
from layermem.layers.base import Y_OVER_X, Layer, Overlay, Step, Tensor, layer, roles
from layermem.layers.loss import SCALAR, read_loss_param, require


def require_labels(layer: Layer, along: int) -> None:
    """InputError unless the second bottom has one label per position."""
    x, label = layer.bottoms[:2]
    positions = Tensor((*x.shape[:along], 1, *x.shape[along + 1 :]))
    require(label.count == positions.count, layer, f"give one label per position: {positions} with axis {along}")


@layer("Softmax")
class Softmax(Layer):
    caffe_reads = "y"
    right_in_place = True
    inplace = True
    gives_probabilities = True

    def setup(self) -> None:
        self.tops = self.bottoms
        self.record = ops.Softmax(self.bottoms[0], self.axis(self.param.softmax_param.axis))

    def forward(self) -> Step:
        overlays = (Y_OVER_X,)
        return Step("forward", ("x0",), ("y0",), overlays=overlays, flops=8 * self.tops[0].count)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        if "dx0" not in wants:
            return ()
        overlays = elementwise_overlays("dx0", "dy0", "y0")
        return (Step("backward", ("y0", "dy0"), ("dx0",), overlays=overlays, flops=4 * self.tops[0].count),)


@layer("SoftmaxWithLoss")
class SoftmaxWithLoss(Layer):
    deploys_as = "Softmax"
    bottom_range = (2, 2)
    top_range = (1, 2)
    is_loss = compares_classes = True

    def setup(self) -> None:
        x, label = self.bottoms
        along = self.axis(self.param.softmax_param.axis)
        require_labels(self, along)
        normalization = read_loss_param(self.param.loss_param, prod(x.shape[:along]), label.count, default="VALID")
        self.tops = (SCALAR, x)[: len(self.param.top)]
        self.record = ops.SoftmaxLoss(x, along, label, *normalization)

    @property
    def caffe_state_bytes(self) -> int:
        """Bytes of the probabilities."""
        return self.bottoms[0].nbytes

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

    def index_limit(self, bottom: int) -> int | None:
        return self.bottoms[0].shape[self.axis(self.param.softmax_param.axis)] if bottom == 1 else None


@layer("InfogainLoss")
class InfogainLoss(Layer):
    """The matrix H is the third bottom; where `source` names a file, a part before this layer reads it (composite.py).

    Shares are clipped at 1e-20; the gradient ignores this limit, as in Caffe.
    """

    deploys_as = "Softmax"
    bottom_range = (2, 3)
    top_range = (1, 2)
    is_loss = True

    def setup(self) -> None:
        x, label = self.bottoms[:2]
        along = self.axis(self.param.infogain_loss_param.axis)
        require_labels(self, along)
        if len(self.bottoms) < 3:
            raise InputError("has no matrix; give `source` in its infogain_loss_param, or a third bottom")
        if self.param.loss_param.HasField("normalize"):
            raise InputError("gives normalize in its loss_param, which InfogainLoss does not take; use normalization")
        classes, matrix = x.shape[along], self.bottoms[2]
        if matrix.count != classes**2 or matrix.interleaved:
            raise InputError(
                f"has a matrix of shape {matrix} for {classes} classes; give 1 x 1 x {classes} x {classes} numbers"
            )
        normalization = read_loss_param(self.param.loss_param, prod(x.shape[:along]), label.count, default="VALID")
        self.tops = (SCALAR, x)[: len(self.param.top)]
        self.record = ops.InfogainLoss(x, along, label, *normalization)

    @property
    def caffe_state_bytes(self) -> int:
        """Bytes of the probabilities."""
        return self.bottoms[0].nbytes

    def forward(self) -> Step:
        writes = roles("y", len(self.tops))
        overlays = (Overlay("y1", "x0", "forward"),) if len(self.tops) > 1 else ()
        return Step("forward", ("x0", "x1", "x2"), writes, overlays=overlays, flops=12 * self.bottoms[0].count)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        if "dx0" not in wants:
            return ()
        overlays = elementwise_overlays("dx0", "x0")
        flops = 9 * self.bottoms[0].count
        return (Step("backward", ("x0", "x1", "x2", "dy0"), ("dx0",), overlays=overlays, flops=flops),)


@layer("Accuracy")
class Accuracy(Layer):
    """A label is among the top_k if fewer than top_k other scores are at least its own: ties are misses."""

    has_gradient = False
    takes_truth = True
    is_score = compares_classes = True
    bottom_range = (2, 2)
    top_range = (1, 2)

    def setup(self) -> None:
        p, (x, label) = self.param.accuracy_param, self.bottoms
        along = self.axis(p.axis)
        require_labels(self, along)
        classes = x.shape[along]
        if not 1 <= p.top_k <= classes:
            raise InputError(f"has top_k {p.top_k} of {classes} classes; use a smaller top_k")
        self.tops = (SCALAR, Tensor((classes,)))[: len(self.param.top)]
        self.record = ops.Accuracy(x, along, label, p.ignore_label if p.HasField("ignore_label") else None, p.top_k)

    def forward(self) -> Step:
        return Step("forward", ("x0", "x1"), roles("y", len(self.tops)), flops=self.bottoms[0].count)

    def index_limit(self, bottom: int) -> int | None:
        return self.bottoms[0].shape[self.axis(self.param.accuracy_param.axis)] if bottom == 1 else None
