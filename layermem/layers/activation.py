"""Activations: each element of y comes from one element of x.

    type       y (defaults)                                    backward reads, beside dy
    ReLU       x > 0 ? x : negative_slope x  (0)               one bit per element, or y or x where another op keeps it
    PReLU      x > 0 ? x : w x,  w per channel or one          x, w
    ELU        x > 0 ? x : alpha (exp(x) - 1)  (1)             x
    Sigmoid    1 / (1 + exp(-x))                               y
    TanH       tanh(x)                                         y
    AbsVal     |x|                                             x
    Power      (shift + scale x) ^ power  (1, 1, 0)            x; nothing where y is linear in x
    Exp        base ^ (shift + scale x)  (e, 1, 0)             y
    Log        log_base(shift + scale x)  (e, 1, 0)            x
    BNLL       log(1 + exp(x))                                 x
    Clip       min(max(x, min), max)                           one bit per element, or x where another op keeps it
    ReLU6      min(max(x, 0), 6), of forks                     as Clip
    Swish      x sigmoid(beta x)  (1)                          x
    Threshold  x > threshold ? 1 : 0  (0)                      has no gradient

source  Caffe relu_layer.cpp and its neighbours
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import exp, log
from typing import ClassVar

import numpy as np

from layermem import ops
from layermem.errors import InputError
from layermem.layers.base import Y_OVER_X, Layer, Overlay, Param, Step, Tensor, layer
from layermem.ops import Kind, Pointwise
from layermem.proto.schema import FillerParameter

LARGEST = float(np.finfo(np.float32).max)  # largest float32, the type of the settings of kernels
LN_LARGEST = log(LARGEST)


def elementwise_overlays(out: str, *over: str) -> tuple[Overlay, ...]:
    """Overlays of a kernel that reads element i of all its inputs before it writes element i of `out`."""
    return tuple(Overlay(out, o, "gradient" if o.startswith("dy") else "intra") for o in over)


def bits(x: Tensor) -> Tensor:
    """A tensor of one bit per element of x, in the order of memory; the first is the lowest bit of byte 0."""
    return Tensor((-(-x.count // 8),), "uint8")


class Activation(Layer):
    """y0 = f(x0) element by element; an output may overlay any input of its size."""

    inplace = True
    kind: ClassVar[Kind]
    derivative_reads: ClassVar[tuple[str, ...]] = ("x0",)
    operations: ClassVar[int] = 1  # arithmetic per element, for costs

    def setup(self) -> None:
        self.tops = self.bottoms
        self.configure()

    def configure(self) -> None:
        """Read the parameters of the type, if it has any, and set `record`."""
        self.pointwise()

    def pointwise(self, alpha: float = 0.0, beta: float = 0.0, gamma: float = 0.0) -> None:
        self.record = Pointwise(self.kind, self.bottoms[0], alpha, beta, gamma)

    def backward_reads(self, saved: Collection[str]) -> tuple[str, ...]:
        """The roles from which the derivative is computed."""
        return self.derivative_reads

    def forward(self) -> Step:
        overlays = (Y_OVER_X,)
        writes = ("y0", *self.stash)
        return Step("forward", ("x0",), writes, overlays=overlays, flops=self.operations * self.tops[0].count)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        if "dx0" not in wants:
            return ()
        reads = self.backward_reads(saved)
        data = [role for role in reads if role not in self.stash]
        overlays = elementwise_overlays("dx0", "dy0", *data)
        flops = self.operations * self.tops[0].count
        return (Step("backward", (*reads, "dy0"), ("dx0",), overlays=overlays, flops=flops),)


@layer("ReLU")
class ReLU(Activation):
    caffe_reads = "x"
    right_in_place = keeps_signs = True
    kind = Kind.RELU

    def configure(self) -> None:
        self.negative_slope: float = self.param.relu_param.negative_slope
        self.stash = {"mask": bits(self.tops[0])}  # set where x > 0
        self.pointwise(self.negative_slope)

    def backward_reads(self, saved: Collection[str]) -> tuple[str, ...]:
        if "y0" in saved and self.negative_slope >= 0:  # then y > 0 exactly where x > 0
            return ("y0",)
        return ("x0",) if "x0" in saved else ("mask",)


@layer("Clip")
class Clip(Activation):
    caffe_reads = "x"
    kind = Kind.CLIP

    def configure(self) -> None:
        low, high = self.bounds()
        self.stash = {"mask": bits(self.tops[0])}  # set where min <= x <= max; y is a bound at it and beyond it
        self.pointwise(low, high)

    def bounds(self) -> tuple[float, float]:
        if not self.param.HasField("clip_param"):
            raise InputError("needs its bounds; add clip_param { min: 0 max: 6 }")
        p = self.param.clip_param
        if not p.min <= p.max:
            raise InputError(f"clips to min {p.min:g} above max {p.max:g}; exchange them")
        return p.min, p.max

    def backward_reads(self, saved: Collection[str]) -> tuple[str, ...]:
        return ("x0",) if "x0" in saved else ("mask",)


@layer("ReLU6")
class ReLU6(Clip):
    """The ReLU6 of forks for MobileNets (chuanqi305/ssd), without parameters."""

    caffe_reads = ""
    right_in_place = True

    def bounds(self) -> tuple[float, float]:
        return 0.0, 6.0


@layer("PReLU")
class PReLU(Activation):
    """A ReLU whose negative slope is learned: w0 [C], or one scalar w0 for all channels."""

    right_in_place = True

    def configure(self) -> None:
        p = self.param.prelu_param
        self.caffe_reads = "" if self.works_in_place else "x"
        if len(self.bottoms[0].shape) < 2:
            raise InputError(f"has a bottom of shape {self.bottoms[0]}; PReLU takes at least 2 axes: N x C ...")
        filler = p.filler if p.HasField("filler") else FillerParameter(type="constant", value=0.25)
        shape = () if p.channel_shared else (self.bottoms[0].shape[1],)
        self.params: tuple[Param, ...] = (self.make_param(0, shape, filler),)
        self.record = ops.PReLU(self.bottoms[0], p.channel_shared)

    @property
    def caffe_state_bytes(self) -> int:
        """Bytes of the input, which an output in place overwrites."""
        return self.bottoms[0].nbytes if self.works_in_place else 0

    def forward(self) -> Step:
        overlays = (Y_OVER_X,)
        return Step("forward", ("x0", "w0"), ("y0",), overlays=overlays, flops=2 * self.tops[0].count)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        writes = tuple(role for role in ("dx0", "dw0") if role in wants)
        reads = ("x0", "w0", "dy0") if "dx0" in wants else ("x0", "dy0")  # dw = sum of dy x where x <= 0
        overlays = elementwise_overlays("dx0", "dy0", "x0") if "dx0" in wants else ()
        flops = 2 * len(writes) * self.tops[0].count
        return (Step("backward", reads, writes, overlays=overlays, flops=flops),) if writes else ()


@layer("ELU")
class ELU(Activation):
    caffe_reads = "xy"
    right_in_place = True
    kind = Kind.ELU
    operations = 8

    def configure(self) -> None:
        self.pointwise(self.param.elu_param.alpha)


@layer("Sigmoid")
class Sigmoid(Activation):
    gives_probabilities = True
    caffe_reads = "y"
    right_in_place = True
    kind = Kind.SIGMOID
    derivative_reads = ("y0",)
    operations = 8


@layer("TanH")
class TanH(Activation):
    caffe_reads = "y"
    right_in_place = True
    kind = Kind.TANH
    derivative_reads = ("y0",)
    operations = 8


@layer("AbsVal")
class AbsVal(Activation):
    caffe_reads = "x"
    kind = Kind.ABSVAL


@layer("Power")
class Power(Activation):
    kind = Kind.POWER
    operations = 4

    def configure(self) -> None:
        p = self.param.power_param
        power = Pointwise(self.kind, self.bottoms[0], p.power, p.scale, p.shift)
        self.record, self.linear = power, power.has_constant_slope
        self.caffe_reads = "" if p.power in (0, 1) else "xy"

    def backward_reads(self, saved: Collection[str]) -> tuple[str, ...]:
        return () if self.linear else ("x0",)


@layer("Exp")
class Exp(Activation):
    """y = outer exp(inner x):  inner = scale ln(base), outer = base^shift."""

    caffe_reads = "y"
    right_in_place = True
    kind = Kind.EXP
    derivative_reads = ("y0",)
    operations = 8

    def configure(self) -> None:
        p = self.param.exp_param
        ln = log_of_base(p.base)
        if p.shift * ln > LN_LARGEST or abs(p.scale * ln) > LARGEST:
            raise InputError(
                f"overflows float32 with base {p.base:g}, scale {p.scale:g} and shift {p.shift:g}; use a smaller base, "
                "scale or shift"
            )
        self.pointwise(p.scale * ln, exp(p.shift * ln))


@layer("Log")
class Log(Activation):
    """y = factor ln(shift + scale x):  factor = 1 / ln(base)."""

    caffe_reads = "x"
    kind = Kind.LOG
    operations = 8

    def configure(self) -> None:
        p = self.param.log_param
        if p.base == 1:
            raise InputError("takes a logarithm to base 1, which has no value; use another base (-1 means e)")
        self.pointwise(p.scale, p.shift, 1 / log_of_base(p.base))


@layer("BNLL")
class BNLL(Activation):
    caffe_reads = "x"
    kind = Kind.BNLL
    operations = 8


@layer("Swish")
class Swish(Activation):
    caffe_reads = "y"
    right_in_place = True
    kind = Kind.SWISH
    operations = 8

    def configure(self) -> None:
        self.pointwise(self.param.swish_param.beta)

    @property
    def caffe_state_bytes(self) -> int:
        """Bytes of the sigmoid and of its input."""
        return 2 * self.bottoms[0].nbytes


@layer("Threshold")
class Threshold(Activation):
    has_gradient = False
    kind = Kind.THRESHOLD

    def configure(self) -> None:
        self.pointwise(self.param.threshold_param.threshold)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        return ()


def log_of_base(base: float) -> float:
    """ln(base); Caffe writes e as -1."""
    if base == -1:
        return 1.0
    if base <= 0:
        raise InputError(f"has base {base:g}; use a positive base, or -1 for e")
    return log(base)
