"""Eltwise: bottoms of one shape, combined element by element."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import EndsInRelu, PerItem, Tensor


@dataclass(frozen=True)
class Eltwise(EndsInRelu, PerItem):
    """`bottoms` blobs of shape `x`; `operation` is SUM (with coeffs), PROD or MAX.

    forward    y0 from x{i}; MAX writes winner (index of a bottom), a fused relu writes mask, where declared
    backward   dx{i} from dy0; PROD also reads the other x{i}, MAX winner, a fused relu mask or y0
    """

    operation: str
    x: Tensor
    bottoms: int
    coeffs: tuple[float, ...]
    relu: bool = False

    @property
    def fusion(self) -> str | None:
        return "Eltwise+relu" if self.relu else None


@dataclass(frozen=True)
class ResidualGrad(PerItem):
    """The gradient of a blob that another op's epilogue adds.   backward   dx1 = dy0"""

    x: Tensor
