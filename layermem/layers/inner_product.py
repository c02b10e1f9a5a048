"""InnerProduct: every row of the bottom against every row of the weights.

    x [M.., K..] -> y [M.., num_output],  y = x W' + b;  K.. are the axes from `axis` on, M.. those before it
    weights (num_output, K), or (K, num_output) where `transpose` is set;  bias (num_output)
    source  Caffe inner_product_layer.cpp

Over a 4-D bottom with H*W > 1 the weights of one output are kept in the bottom's own order, channels last, so that
no device has to permute x: files see (num_output, C*H*W), kernels (num_output, C, H, W).  A transposed weight stays
a plain matrix with its rows in NCHW order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from layermem import ops
from layermem.errors import InputError
from layermem.layers.base import Layer, Step, Tensor, layer, roles


@layer("InnerProduct")
class InnerProduct(Layer):
    """Attributes for devices: the matrix is rows x inner times inner x outputs.

    transpose  the weights are (inner, outputs)
    spatial    x and w0 are 4-D, and both lie channels-last: a row of memory meets a row of memory
    by_rows    a row of w0 in memory depends on a row of memory of x and a column of y alone
    """

    def setup(self) -> None:
        p = self.param.inner_product_param
        x = self.bottoms[0]
        if p.num_output < 1:
            raise InputError("needs num_output of at least 1")
        axis = self.axis(p.axis)
        self.rows, self.inner, self.outputs = prod(x.shape[:axis]), prod(x.shape[axis:]), p.num_output
        self.transpose, self.has_bias = p.transpose, p.bias_term
        self.spatial = len(x.shape) == 4 and axis == 1 and prod(x.shape[2:]) > 1 and not self.transpose
        self.tops = (Tensor((*x.shape[:axis], self.outputs)),)
        shape = (self.inner, self.outputs) if self.transpose else (self.outputs, self.inner)
        stored = (self.outputs, *x.shape[1:]) if self.spatial else None
        self.params = (self.make_param(0, shape, p.weight_filler, stored=stored),)
        if self.has_bias:
            self.params += (self.make_param(1, (self.outputs,), p.bias_filler),)
        flat = len(x.shape) != 4 or prod(x.shape[2:]) == 1
        self.by_rows = not self.transpose and (self.spatial or flat) and len(self.tops[0].shape) < 4
        self.flops = 2 * self.rows * self.inner * self.outputs
        self.record = ops.InnerProduct(
            x,
            self.tops[0],
            self.rows,
            self.inner,
            self.outputs,
            self.has_bias,
            self.transpose,
            self.spatial,
            self.by_rows,
        )

    def forward(self) -> Step:
        return Step("forward", ("x0", *roles("w", len(self.params))), ("y0",), flops=self.flops)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        steps = []
        gradients = tuple(role for role in roles("dw", len(self.params)) if role in wants)
        if gradients:
            xs = ("x0",) if "dw0" in gradients else ()  # the bias needs dy only
            flops = self.flops if xs else self.tops[0].count
            steps.append(Step("wgrad", (*xs, "dy0"), gradients, flops=flops))
        if "dx0" in wants:  # x is dead by now: dx may lie where it lay
            steps.append(Step("dgrad", ("dy0", "w0"), ("dx0",), flops=self.flops))
        return steps
