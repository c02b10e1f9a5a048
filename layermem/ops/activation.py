"""Pointwise functions: each element of y comes from one element of x.

kind        y                                          alpha, beta, gamma       backward reads, beside dy0
RELU        x > 0 ? x : alpha x                        negative slope           mask, or y0, or x0
CLIP        min(max(x, alpha), beta)                   min, max                 mask, or x0
ELU         x > 0 ? x : alpha (exp(x) - 1)             alpha                    x0
SIGMOID     1 / (1 + exp(-x))                                                   y0
TANH        tanh(x)                                                             y0
ABSVAL      |x|                                                                 x0
POWER       (gamma + beta x) ^ alpha                   power, scale, shift      x0; nothing where y is linear in x
EXP         beta exp(alpha x)                          inner, outer             y0
LOG         gamma ln(beta + alpha x)                   scale, shift, factor     x0
BNLL        log(1 + exp(x))                                                     x0
SWISH       x sigmoid(alpha x)                         beta of Caffe            x0
THRESHOLD   x > alpha ? 1 : 0                          threshold                no gradient
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from layermem.ops.base import PIECES, WEIGHTS, Along, OpRecord, PerItem, Tensor


class Kind(Enum):
    """The function of a Pointwise op; the value is the stem of its kernels' names."""

    RELU = "relu"
    CLIP = "clip"
    ELU = "elu"
    SIGMOID = "sigmoid"
    TANH = "tanh"
    ABSVAL = "absval"
    POWER = "power"
    EXP = "exp"
    LOG = "log"
    BNLL = "bnll"
    SWISH = "swish"
    THRESHOLD = "threshold"


@dataclass(frozen=True)
class Pointwise(PerItem):
    """y = f(x), element by element; `x` is the tensor of both.

    forward    y0 from x0; RELU and CLIP write mask (1 bit per element: the slope is 1) where it is declared
    backward   dx0 = dy0 f'(.), the slope taken from the mask, y0 or x0, whichever is declared
    """

    kind: Kind
    x: Tensor
    alpha: float = 0.0
    beta: float = 0.0
    gamma: float = 0.0

    @property
    def has_constant_slope(self) -> bool:
        """Whether backward computes the slope from alpha and beta alone."""
        return self.kind is Kind.POWER and (self.alpha in (0, 1) or self.beta == 0)


@dataclass(frozen=True)
class PReLU(OpRecord):
    """y = x > 0 ? x : w x, with w0 [C], or a scalar where it is `shared` between channels.

    forward    y0 from x0, w0        backward   dx0, dw0 from x0, w0, dy0
    """

    x: Tensor
    shared: bool

    def over_items(self, step: str) -> Along:
        return WEIGHTS if step == "backward" else PIECES


@dataclass(frozen=True)
class ReluMask(PerItem):
    """The backward of a ReLU that runs in another op's epilogue.

    relu_backward   dy0 is cleared in place where the bit of mask is, or where y0 <= 0 if there is no mask
    """

    y: Tensor
