"""Updates: a parameter changes by its gradient and the optimizer state."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import OpRecord, Tensor

RULES = ("SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam")


@dataclass(frozen=True)
class Update(OpRecord):
    """update   w0, h0, h1 change by dw0 [, norm] according to `rule` (one of RULES)"""

    rule: str
    parameter: str
    tensor: Tensor
    lr_mult: float = 1.0
    decay_mult: float = 1.0


@dataclass(frozen=True)
class GradientNorm(OpRecord):
    """forward   y0 = L2 norm over all gradients x0 x1 .., summed parameter by parameter in the order of the net"""
