"""InnerProduct: every row of x against every row of the weights."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import NO_SUMS, WEIGHTS, OpRecord, Tensor, epilogue_name
from layermem.ops.update import Update


@dataclass(frozen=True)
class InnerProduct(OpRecord):
    """y [rows, outputs] = x [rows, inner] w' [+ bias] [+ x1] [relu].

    x, y        the blobs with their own axes
    transpose   w0 is (inner, outputs) instead of (outputs, inner)
    spatial     x and w0 are 4-D and both stored channels-last: a row of memory meets a row of memory
    by_rows     each stored row of w0 depends on one column of y and one stored row of x only: no operand is reordered

    forward   y0 from x0, w0 [, w1, x1]; writes mask where it is declared
    wgrad   dw0, dw1 from x0, dy0               dgrad   dx0 from dy0, w0
    """

    x: Tensor
    y: Tensor
    rows: int
    inner: int
    outputs: int
    bias: bool = False
    transpose: bool = False
    spatial: bool = False
    by_rows: bool = True
    relu: bool = False
    residual: bool = False

    @property
    def fusion(self) -> str | None:
        return (
            epilogue_name("InnerProduct", residual=self.residual, relu=self.relu)
            if self.relu or self.residual
            else None
        )

    def batch_sums(self, step: str) -> frozenset[str] | None:
        return WEIGHTS if step == "wgrad" else NO_SUMS


@dataclass(frozen=True)
class InnerProductUpdate(OpRecord):
    """The gradient of the weights, consumed by their update while it is computed.

    backward_update   w0, h0, h1 change by the gradient of x0, dy0; writes dw1
    """

    product: InnerProduct
    update: Update

    @property
    def fusion(self) -> str | None:
        return "InnerProduct+update"
