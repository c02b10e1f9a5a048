"""InnerProduct: the product of every row of the bottom with every row of the weights.

    x [M.., K..] -> y [M.., num_output],  y = x W' + b;  K.. are the axes from `axis` on, M.. those before it
    weights (num_output, K), or (K, num_output) where `transpose` is set;  bias (num_output)
    memory  stashes nothing; wgrad reads x and dy, dgrad reads dy and the weights alone and runs last: dx may take the
            bytes of x
    source  Caffe inner_product_layer.cpp

Over a 4-D bottom with H*W > 1 the weights of one output are stored in the order of the bottom, channels last, so that
no backend permutes x: files hold (num_output, C*H*W), kernels read (num_output, C, H, W).  A transposed weight stays
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
    reads_x_for_weights = True
    family = "inner product"
    record: ops.InnerProduct

    def setup(self) -> None:
        p = self.param.inner_product_param
        x = self.bottoms[0]
        if p.num_output < 1:
            raise InputError("has num_output 0; set inner_product_param { num_output } to at least 1")
        axis = self.axis(p.axis)
        rows, inner, outputs = prod(x.shape[:axis]), prod(x.shape[axis:]), p.num_output
        spatial = len(x.shape) == 4 and axis == 1 and prod(x.shape[2:]) > 1 and not p.transpose
        y = Tensor((*x.shape[:axis], outputs))
        self.tops = (y,)
        shape = (inner, outputs) if p.transpose else (outputs, inner)
        stored = (outputs, *x.shape[1:]) if spatial else None
        self.params = (self.make_param(0, shape, p.weight_filler, stored=stored),)
        if p.bias_term:
            self.params += (self.make_param(1, (outputs,), p.bias_filler),)
        flat = len(x.shape) != 4 or prod(x.shape[2:]) == 1
        by_rows = not p.transpose and (spatial or flat) and len(y.shape) < 4
        self.flops = 2 * rows * inner * outputs
        self.record = ops.InnerProduct(
            x, y, rows, inner, outputs, bias=p.bias_term, transpose=p.transpose, spatial=spatial, by_rows=by_rows
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
        if "dx0" in wants:
            steps.append(Step("dgrad", ("dy0", "w0"), ("dx0",), flops=self.flops))
        return steps
