"""Pooling: the maximum, or the mean, of each window."""

from __future__ import annotations

from dataclasses import dataclass, field

from layermem.ops.base import PerItem, Tensor, Window

MASKED_POOL = "Pool.backward+relu"  # in Device.fusions: backward may read relu_mask
POOL_RELU = "Pool+bottom_relu"


@dataclass(frozen=True)
class Pool(PerItem):
    """x [N,C,H,W] -> y [N,C,Ho,Wo]; `method` is MAX or AVE.

    forward    y0 from x0; MAX writes argmax (index within the window) and y1 (index within the plane H x W, the mask of
               Caffe) where they are declared
    backward   dx0 from dy0 and, for MAX, argmax
    bottom_relu   MAX ends with the backward of the ReLU that made x0: argmax is the number of taps where the maximum is
               not positive, and no gradient goes there.  There is no y1 then, and x0 has no other gradient

    With the role relu_mask, backward ends with that of the ReLU too: the sum in dx0 is cleared where the bit is not
    set.
    """

    method: str
    x: Tensor
    y: Tensor
    rows: Window
    columns: Window
    bottom_relu: bool = field(default=False, kw_only=True)

    @property
    def fusion(self) -> str | None:
        return POOL_RELU if self.bottom_relu else None

    @property
    def argmax(self) -> Tensor:
        """The index of an element within its window, one for each window."""
        return self.y.of("uint8" if self.taps + self.bottom_relu <= 256 else "int32")

    @property
    def indices(self) -> tuple[str, ...]:
        return ("y1",)

    @property
    def windows(self) -> tuple[Window, Window]:
        return self.rows, self.columns

    @property
    def taps(self) -> int:
        return self.rows.kernel * self.columns.kernel


@dataclass(frozen=True)
class StochasticPool(Pool):
    """One element of each window, drawn with the probability of its share of the sum; `method` is STOCHASTIC.

    forward    y0 from x0; writes argmax where it is declared.  Its gradient is that of MAX
    stream     second word of the generator's key, by layer (see Dropout)
    average    TEST phase: the mean that these probabilities give, sum x^2 / sum x
    """

    stream: int = 0
    average: bool = False
