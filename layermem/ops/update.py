"""Updates of parameters by their gradients and the optimizer state."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import Along, OpRecord, Tensor

RULES = ("SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam", "AdamW")
JOINED_UPDATES = "Update+Update"  # in Device.fusions: consecutive updates run as one launch
MAX_JOINED = 64  # updates in one launch: the size of the argument array in cuda/update.cu
ACCUMULATE = "Accumulate"  # a further rule: w0 += dw0, for gradients of several micro-batches; there is no h0


@dataclass(frozen=True)
class Update(OpRecord):
    """update   w0, h0, h1 change by dw0 [, norm] according to `rule` (one of RULES, or ACCUMULATE)

    tensor      the tensor of dw0, h0 and h1: all rows of the parameter or some of them
    first_row   the first of these rows; w0 has all rows
    scaled      dw0 and norm are multiplied by the loss scale of the step, which the update first divides out; if norm
                is not finite, nothing changes
    """

    rule: str
    parameter: str
    tensor: Tensor
    lr_mult: float = 1.0
    decay_mult: float = 1.0
    first_row: int = 0
    scaled: bool = False

    @property
    def decoupled(self) -> bool:
        """Whether weight decay shrinks the parameter itself, by the learning rate, instead of joining the gradient."""
        return self.rule == "AdamW"

    def over_rows(self, step: str) -> Along:
        return Along(whole=frozenset({"norm"}))

    @property
    def first_element(self) -> int:
        """Index of the element of w0 at which the rows of `tensor` begin."""
        return self.first_row * (self.tensor.count // max(1, self.tensor.shape[0]) if self.tensor.shape else 1)


@dataclass(frozen=True)
class GradientNorm(OpRecord):
    """forward   y0 = L2 norm over all gradients x0 x1 .., summed parameter by parameter in the order of the net"""
