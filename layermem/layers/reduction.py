"""Reduction and ArgMax: many elements become few.

    Reduction  all axes from `axis` (0) on become one number, times `coeff`      backward reads, beside dy
               SUM    sum x                                                      nothing
               MEAN   sum x / count                                              nothing
               ASUM   sum |x|                                                    x
               SUMSQ  sum x^2                                                    x
    ArgMax     the `top_k` (1) largest along `axis`, or of each item: their places, values, or both; no gradient

source  Caffe reduction_layer.cpp, argmax_layer.cpp
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from layermem import ops
from layermem.errors import InputError
from layermem.layers.activation import elementwise_overlays
from layermem.layers.base import Layer, Step, Tensor, layer

OPERATIONS = {1: "SUM", 2: "ASUM", 3: "SUMSQ", 4: "MEAN"}  # ReductionParameter.ReductionOp


@layer("Reduction")
class Reduction(Layer):
    """operation: SUM, ASUM, SUMSQ or MEAN;  factor: coeff, for a MEAN divided by the count;  along: first axis."""

    def setup(self) -> None:
        p, x = self.param.reduction_param, self.bottoms[0]
        self.operation = OPERATIONS[p.operation]
        self.along = self.axis(p.axis)
        self.factor: float = p.coeff
        if self.operation == "MEAN":
            self.factor /= prod(x.shape[self.along :])
        self.tops = (Tensor(x.shape[: self.along]),)
        self.record = ops.Reduction(self.operation, x, self.tops[0], self.along, self.factor)

    def forward(self) -> Step:
        return Step("forward", ("x0",), ("y0",), flops=2 * self.bottoms[0].count)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        if "dx0" not in wants:
            return ()
        data = ("x0",) if self.operation in ("ASUM", "SUMSQ") else ()
        overlays = elementwise_overlays("dx0", *data)
        return (Step("backward", (*data, "dy0"), ("dx0",), overlays=overlays, flops=2 * self.bottoms[0].count),)


@layer("ArgMax")
class ArgMax(Layer):
    """along: the axis, None for all but the first;  with_values: values instead of places along an axis, else both.

    y  [.., top_k, ..] along an axis; else [N, 1 or 2, top_k] (two: places, then values), 1 for each axis beyond three.
    Of equal elements the one further back comes first, as Caffe sorts (value, place) pairs.
    """

    def setup(self) -> None:
        p, x = self.param.argmax_param, self.bottoms[0]
        self.along = self.axis(p.axis) if p.HasField("axis") else None
        self.with_values: bool = p.out_max_val
        self.top_k: int = p.top_k
        size = prod(x.shape[1:]) if self.along is None else x.shape[self.along]
        if not 1 <= self.top_k <= size:
            raise InputError(f"asks for the top {self.top_k} of {size} elements; use top_k from 1 to {size}")
        if self.along is not None:
            shape = (*x.shape[: self.along], self.top_k, *x.shape[self.along + 1 :])
        else:
            ones = (1,) * (len(x.shape) - 3)
            shape = (x.shape[0], 2 if self.with_values else 1, self.top_k, *ones)
        self.tops = (Tensor(shape),)
        self.record = ops.ArgMax(x, self.tops[0], self.along, self.top_k, self.with_values)

    def forward(self) -> Step:
        return Step("forward", ("x0",), ("y0",), flops=self.bottoms[0].count)
