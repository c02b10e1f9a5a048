"""InnerProduct: the product of every row of x with every row of the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from layermem.ops.base import PIECES, WEIGHTS, Along, EndsInRelu, OpRecord, Tensor, epilogue_name
from layermem.ops.update import Update


@dataclass(frozen=True)
class RowBand:
    """A band of a weight matrix: `rows` rows, from row `first` on."""

    first: int
    rows: int

    @property
    def is_first(self) -> bool:
        return self.first == 0


class BandRules(NamedTuple):
    """The rules of a device for an InnerProduct in bands of the rows of its weights, with the bits of the whole.

    multiple   the number of rows of each band but the last is a multiple of it
    sums_dx    dgrad of a band continues the sums of the bands before it; False: gathered_dgrad reads all bands
    adds_dx    dgrad also continues from the gradients that other layers added to dx
    """

    multiple: int = 1
    sums_dx: bool = True
    adds_dx: bool = True


@dataclass(frozen=True)
class InnerProduct(EndsInRelu):
    """y [rows, outputs] = x [rows, inner] w' [+ bias] [+ x1] [relu].

    x, y        the blobs with their own axes
    transpose   w0 is (inner, outputs) instead of (outputs, inner)
    spatial     x and w0 are 4-D and both stored channels-last: rows of memory are multiplied as they are
    by_rows     each stored row of w0 depends on one column of y and one stored row of x only: no operand is reordered

    band        w0 has only these rows of the weights, `outputs` of them, and so has dw0 (graph/bands.py); the bias w1
                is whole.  None: w0 has all rows

    forward   y0 from x0, w0 [, w1, x1]; writes mask where it is declared
    wgrad   dw0, dw1 from x0, dy0               dgrad   dx0 from dy0, w0

    With a band, forward writes a y0 of its own columns.  wgrad and dgrad read their columns of the whole dy0; wgrad has
    no dw1.  The dgrad of each band after the first accumulates dx0: it continues the sum over the outputs, and after
    the last band dx0 has the bits of the whole.

    gathered_dgrad   dx0 from dy0 and the bands of the weights w0, w1 .., for devices that do not continue the sum
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
    band: RowBand | None = None

    @property
    def first_output(self) -> int:
        """The first column of dy0 that this op reads."""
        return 0 if self.band is None else self.band.first

    @property
    def dy_outputs(self) -> int:
        """Number of columns of dy0."""
        return self.outputs if self.band is None else self.band.rows

    @property
    def fusion(self) -> str | None:
        return (
            epilogue_name("InnerProduct", residual=self.residual, relu=self.relu)
            if self.relu or self.residual
            else None
        )

    def over_items(self, step: str) -> Along:
        return WEIGHTS if step == "wgrad" else PIECES

    def over_rows(self, step: str) -> Along:
        if not self.by_rows:
            return Along(refusal="has transposed weights, or a bottom that is reordered for the product")
        if self.relu or self.residual:
            return Along(refusal="has an epilogue, which row bands leave to an op of its own")
        if step == "dgrad":
            return Along(sums=frozenset({"dx0"}), whole=frozenset({"dy0"}))
        return Along(whole=frozenset({"x0", "w1", "dy0", "dw1"}))


@dataclass(frozen=True)
class InnerProductUpdate(OpRecord):
    """Computes the gradient of the weights and updates them with it in one op.

    backward_update   w0, h0, h1 change by the gradient of x0, dy0; writes dw1
    """

    product: InnerProduct
    update: Update

    @property
    def fusion(self) -> str | None:
        return "InnerProduct+update"
