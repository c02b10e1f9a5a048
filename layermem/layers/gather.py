"""Embed and BatchReindex: rows of a table, chosen by index.

    Embed         x [M..] -> y [M.., num_output],  y[m] = w[x[m]] [+ b];  weights (input_dim, num_output)
    BatchReindex  x [N, ..], index [M] -> y [M, ..],  y[m] = x[index[m]]

    memory  both stash nothing.  Backward reads dy and the indices: the values of a table are not needed for its
            gradient, a sum of rows of dy in rising order of m, whatever the plan and the number of threads
    source  Caffe embed_layer.cpp, batch_reindex_layer.cpp

An index is the integer part of its number, from 0 to the number of rows less 1; another one stops the run.  No gradient
flows to indices.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from layermem import ops
from layermem.errors import InputError
from layermem.layers.base import CAFFE_VALUE_BYTES, Layer, Step, Tensor, layer, roles


@layer("Embed")
class Embed(Layer):
    reads_x_for_weights = True
    family = "inner product"
    record: ops.Embed

    def setup(self) -> None:
        p, x = self.param.embed_param, self.bottoms[0]
        if p.num_output < 1 or p.input_dim < 1:
            raise InputError("has no num_output or no input_dim; set both in embed_param to at least 1")
        y = Tensor((*x.shape, p.num_output))
        self.tops = (y,)
        self.params = (self.make_param(0, (p.input_dim, p.num_output), p.weight_filler),)
        if p.bias_term:
            self.params += (self.make_param(1, (p.num_output,), p.bias_filler),)
        self.record = ops.Embed(p.input_dim, p.num_output, x, y, bias=p.bias_term)

    @property
    def caffe_state_bytes(self) -> int:
        """Bytes of the vector of ones by which the gradient of the bias multiplies."""
        return CAFFE_VALUE_BYTES * self.bottoms[0].count if self.param.embed_param.bias_term else 0

    def forward(self) -> Step:
        flops = self.tops[0].count if self.record.bias else 0
        return Step("forward", ("x0", *roles("w", len(self.params))), ("y0",), flops=flops)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        gradients = tuple(role for role in roles("dw", len(self.params)) if role in wants)
        if not gradients:
            return ()
        x = ("x0",) if "dw0" in gradients else ()  # the bias needs dy only
        return (Step("wgrad", (*x, "dy0"), gradients, flops=len(gradients) * self.tops[0].count),)


@layer("BatchReindex")
class BatchReindex(Layer):
    record: ops.BatchReindex
    bottom_range = (2, 2)

    def setup(self) -> None:
        x, index = self.bottoms
        if not x.shape:
            raise InputError("has a first bottom without axes; BatchReindex chooses items along axis 0")
        if len(index.shape) != 1:
            raise InputError(
                f"has a second bottom of {len(index.shape)} axes ({index}); give one index for each item of the top, "
                "in one axis"
            )
        self.record = ops.BatchReindex.of(x, index)
        self.tops = (self.record.y,)

    def forward(self) -> Step:
        return Step("forward", ("x0", "x1"), ("y0",))

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        if "dx0" not in wants:
            return ()
        return (Step("backward", ("x1", "dy0"), ("dx0",), flops=self.tops[0].count),)
