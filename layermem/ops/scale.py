"""Scale and Bias: a factor and a term that span some axes of a blob."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import MIXES, PIECES, Along, OpRecord, Tensor


@dataclass(frozen=True)
class Scale(OpRecord):
    """y = x f [+ b], where f and b span some axes of x.

    operand   role of f: "x1", or "w0" where it is learned      bias     role of b, or None
    view      shape of f with a 1 for each axis that it does not span
    summed    the axes that f does not span

    forward   y0 from x0, f, b      backward   dx0, df, db from dy0, x0, f
    """

    x: Tensor
    operand: str
    view: tuple[int, ...]
    summed: tuple[int, ...]
    bias: str | None = None

    def over_items(self, step: str) -> Along:
        return sums_of_operands(self.operand, self.bias, self.summed, step)


@dataclass(frozen=True)
class Bias(OpRecord):
    """y = x + b; fields as in Scale, with b at `operand`.   forward   y0 from x0, b     backward   dx0, db from dy0"""

    x: Tensor
    operand: str
    view: tuple[int, ...]
    summed: tuple[int, ...]

    def over_items(self, step: str) -> Along:
        return sums_of_operands(self.operand, None, self.summed, step)


def sums_of_operands(operand: str, bias: str | None, summed: tuple[int, ...], step: str) -> Along:
    """OpRecord.over_items of an op whose `operand` and `bias` span all axes but `summed`."""
    if 0 not in summed:
        return PIECES if operand.startswith("x") else MIXES
    if operand.startswith("x"):
        return MIXES
    gradients = frozenset(f"d{role}" for role in (operand, bias) if role is not None)
    return Along(gradients) if step == "backward" else PIECES
