"""LRN, BatchNorm, Scale and Bias: every element against statistics or factors that it shares with others.

    LRN        y = x scale^-beta,  scale = k + alpha/n sum x^2 over n channels around (within a channel: 1 + alpha/n^2
               sum x^2 over the n x n pixels around; Caffe takes no k there)
    BatchNorm  y = (x - mean) / sqrt(var + eps), a channel at a time; var is the biased one
    Scale      y = x f [+ b],  Bias  y = x + b;  f and b are learned, or the second bottom, and span some axes of x
    source     Caffe lrn_layer.cpp, batch_norm_layer.cpp, scale_layer.cpp, bias_layer.cpp

Caffe keeps the scale of an LRN, and the normalized x and its deviations of a BatchNorm: blobs as large as x.  Here
backward rebuilds them from x; only a BatchNorm stashes anything, two numbers a channel.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from layermem import ops
from layermem.errors import InputError
from layermem.layers.base import Layer, Overlay, Param, Step, Tensor, layer
from layermem.proto import schema

WITHIN_CHANNEL = 1

FORWARD = Overlay("y0", "x0", "forward")
GRADIENT = Overlay("dx0", "dy0", "gradient")
INTRA = Overlay("dx0", "x0", "intra")


@layer("LRN")
class LRN(Layer):
    """Attributes for devices: across, size (n), beta; scale = shift + share * (sum of squares around).

    Across channels, kernels read all channels of a pixel before they write any: hence the overlays.
    """

    inplace = True

    def setup(self) -> None:
        p = self.param.lrn_param
        x = self.bottoms[0]
        if len(x.shape) != 4:
            raise InputError(f"has a bottom of {len(x.shape)} axes ({x}); LRN takes N x C x H x W: Reshape it first")
        if p.local_size % 2 == 0:
            raise InputError(f"has local_size {p.local_size}; it must be odd: use {p.local_size + 1}")
        self.across = p.norm_region != WITHIN_CHANNEL
        self.size, self.beta = p.local_size, p.beta
        alpha = p.alpha / (self.size if self.across else self.size**2)
        self.record = ops.LRN(x, self.across, self.size, alpha, self.beta, p.k if self.across else 1.0)
        self.share, self.shift = self.record.alpha, self.record.k
        self.tops = (x,)
        sums = self.size if self.across else 2 * self.size  # within a channel: rows, then columns
        self.flops = x.count * (sums + 5)  # square, sums, shift + share *, power, product

    def forward(self) -> Step:
        return Step("forward", ("x0",), ("y0",), overlays=(FORWARD,) if self.across else (), flops=self.flops)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        overlays = (GRADIENT, INTRA) if self.across else ()
        return (Step("backward", ("x0", "dy0"), ("dx0",), overlays=overlays, flops=2 * self.flops),)


@layer("BatchNorm")
class BatchNorm(Layer):
    """Parameters: sums of means [C], sums of unbiased variances [C], and by how much they must be divided [1].

    A training forward stashes the batch's mean and 1 / sqrt(var + eps), and moves the three sums.  A recomputation reads
    the stash instead, so that it gives the same bits and moves nothing.  Attributes for devices: global_stats (divide by
    the moving averages, which is the default in TEST), fraction, eps, channels, per_channel (elements).
    """

    inplace = True

    def setup(self) -> None:
        p = self.param.batch_norm_param
        x = self.bottoms[0]
        if len(x.shape) < 2:
            raise InputError(f"has a bottom of {len(x.shape)} axes; BatchNorm needs at least 2: N x C")
        self.global_stats = p.use_global_stats if p.HasField("use_global_stats") else self.phase == schema.TEST
        self.fraction, self.eps = p.moving_average_fraction, p.eps
        self.channels = x.shape[1]
        self.per_channel = x.count // self.channels
        self.tops = (x,)
        self.params = tuple(self._average(i, size) for i, size in enumerate((self.channels, self.channels, 1)))
        if not self.global_stats:
            self.stash = {"mean": Tensor((self.channels,)), "inv_std": Tensor((self.channels,))}
        self.record = ops.BatchNorm(x, self.eps, self.fraction, self.global_stats)

    def _average(self, index: int, size: int) -> Param:
        """Moving averages start at 0 and no solver moves them, whatever `param { }` says (as Caffe's upgrade does)."""
        param = self.make_param(index, (size,), schema.FillerParameter())
        return replace(param, lr_mult=0.0, decay_mult=0.0, learned=False)

    def forward(self) -> Step:
        count, averages = self.bottoms[0].count, ("w0", "w1", "w2")
        if self.global_stats:
            return Step("forward", ("x0", *averages), ("y0",), overlays=(FORWARD,), flops=2 * count)
        return Step("forward", ("x0",), ("y0", *self.stash), averages, overlays=(FORWARD,), flops=6 * count)

    def recompute(self) -> Step:
        if self.global_stats:
            return self.forward()
        flops = 2 * self.bottoms[0].count
        return Step("recompute", ("x0", *self.stash), ("y0",), overlays=(FORWARD,), flops=flops)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        count = self.bottoms[0].count
        if self.global_stats:
            return (Step("backward", ("w1", "w2", "dy0"), ("dx0",), overlays=(GRADIENT,), flops=count),)
        reads = ("x0", *self.stash, "dy0")
        return (Step("backward", reads, ("dx0",), overlays=(GRADIENT, INTRA), flops=10 * count),)


class Spanning(Layer):
    """x with an operand that spans x's axes from `axis` on.  Attributes for devices:

    operand  the role of what spans: "x1", or "w0" where it is learned
    view     its shape with a 1 for each axis of x that it does not span
    summed   those axes
    bias     the role of a bias of the same shape, or None
    """

    bottom_range = (1, 2)
    inplace = True
    bias: str | None = None

    def _span(self, axis: int, num_axes: int) -> tuple[int, ...]:
        """Shape of the operand, and the attributes."""
        x = self.bottoms[0]
        start = self.axis(axis)
        if len(self.bottoms) == 2:
            shape = self.bottoms[1].shape
            start = start if shape else 0
            if x.shape[start : start + len(shape)] != shape:
                raise InputError(
                    f"has a second bottom of {self.bottoms[1]}, which must equal the axes of its first ({x}) "
                    f"from axis {start} on: change 'axis' or the bottom"
                )
        else:
            if num_axes < -1 or start + num_axes > len(x.shape):
                raise InputError(
                    f"spans {num_axes} axes from axis {start}, but its bottom has {len(x.shape)}: "
                    f"use num_axes -1 to {len(x.shape) - start}"
                )
            shape = x.shape[start:] if num_axes == -1 else x.shape[start : start + num_axes]
        end = start + len(shape)
        self.operand = "x1" if len(self.bottoms) == 2 else "w0"
        self.view = (1,) * start + shape + (1,) * (len(x.shape) - end)
        self.summed = tuple(i for i in range(len(x.shape)) if not start <= i < end)
        self.tops = (x,)
        return shape


@layer("Scale")
class Scale(Spanning):
    def setup(self) -> None:
        p = self.param.scale_param
        shape = self._span(p.axis, p.num_axes)
        if self.operand == "w0":
            filler: Any = p.filler if p.HasField("filler") else schema.FillerParameter(type="constant", value=1)
            self.params = (self.make_param(0, shape, filler),)
        if p.bias_term:
            self.bias = f"w{len(self.params)}"
            self.params += (self.make_param(len(self.params), shape, p.bias_filler),)
        self.record = ops.Scale(self.bottoms[0], self.operand, self.view, self.summed, self.bias)

    def forward(self) -> Step:
        biases = (self.bias,) if self.bias else ()
        flops = self.bottoms[0].count * (1 + len(biases))
        return Step("forward", ("x0", self.operand, *biases), ("y0",), overlays=(FORWARD,), flops=flops)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        reads, overlays, flops = ["dy0"], [], 0
        if "dx0" in wants:
            reads.append(self.operand)
            overlays.append(GRADIENT)
            flops += 1
        if f"d{self.operand}" in wants:
            reads.insert(0, "x0")
            flops += 2
            if "dx0" in wants:
                overlays.append(INTRA)
        if self.bias and f"d{self.bias}" in wants:
            flops += 1
        writes = tuple(role for role in ("dx0", f"d{self.operand}", f"d{self.bias}") if role in wants)
        return (Step("backward", tuple(reads), writes, (), tuple(overlays), flops * self.bottoms[0].count),)


@layer("Bias")
class Bias(Spanning):
    def setup(self) -> None:
        p = self.param.bias_param
        shape = self._span(p.axis, p.num_axes)
        if self.operand == "w0":
            self.params = (self.make_param(0, shape, p.filler),)
        self.record = ops.Bias(self.bottoms[0], self.operand, self.view, self.summed)

    def forward(self) -> Step:
        flops = self.bottoms[0].count
        return Step("forward", ("x0", self.operand), ("y0",), overlays=(FORWARD,), flops=flops)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        writes = tuple(role for role in ("dx0", f"d{self.operand}") if role in wants)
        flops = self.bottoms[0].count if f"d{self.operand}" in wants else 0
        overlays = (GRADIENT,) if "dx0" in wants else ()
        return (Step("backward", ("dy0",), writes, overlays=overlays, flops=flops),)
