"""Reduction and ArgMax: many elements become few.

    Reduction  all axes from `axis` (0) on become one number, times `coeff`      backward reads, beside dy
               SUM    sum x                                                      nothing
               MEAN   sum x / count                                              nothing
               ASUM   sum |x|                                                    x
               SUMSQ  sum x^2                                                    x
    ArgMax     the `top_k` (1) largest along `axis`, or of each item: their indices, values, or both; no gradient

memory  neither stashes anything
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
    record: ops.Reduction

    def setup(self) -> None:
        p, x = self.param.reduction_param, self.bottoms[0]
        operation, along, factor = OPERATIONS[p.operation], self.axis(p.axis), p.coeff
        if operation == "MEAN":
            factor /= prod(x.shape[along:])
        y = Tensor(x.shape[:along])
        self.tops = (y,)
        self.caffe_reads = "x" if operation in ("ASUM", "SUMSQ") else ""
        self.record = ops.Reduction(operation, x, y, along, factor)

    def forward(self) -> Step:
        return Step("forward", ("x0",), ("y0",), flops=2 * self.bottoms[0].count)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        if "dx0" not in wants:
            return ()
        data = ("x0",) if self.record.operation in ("ASUM", "SUMSQ") else ()
        overlays = elementwise_overlays("dx0", *data)
        return (Step("backward", (*data, "dy0"), ("dx0",), overlays=overlays, flops=2 * self.bottoms[0].count),)


@layer("ArgMax")
class ArgMax(Layer):
    """y  [.., top_k, ..] along an axis: indices, or values with out_max_val

       [N, 1 or 2, top_k] without one: indices, then values with out_max_val; a 1 for each axis beyond three
    Of equal elements the last comes first, as Caffe sorts (value, index) pairs.
    """

    has_gradient = False

    def setup(self) -> None:
        p, x = self.param.argmax_param, self.bottoms[0]
        along = self.axis(p.axis) if p.HasField("axis") else None
        size = prod(x.shape[1:]) if along is None else x.shape[along]
        if not 1 <= p.top_k <= size:
            raise InputError(f"has top_k {p.top_k} for {size} elements; use top_k from 1 to {size}")
        if along is not None:
            shape = (*x.shape[:along], p.top_k, *x.shape[along + 1 :])
        else:
            ones = (1,) * (len(x.shape) - 3)
            shape = (x.shape[0], 2 if p.out_max_val else 1, p.top_k, *ones)
        y = Tensor(shape)
        self.tops = (y,)
        self.record = ops.ArgMax(x, y, along, p.top_k, p.out_max_val)

    def forward(self) -> Step:
        return Step("forward", ("x0",), ("y0",), flops=self.bottoms[0].count)
