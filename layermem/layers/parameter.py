"""Parameter: a learned blob of any shape, as a top.

y = w
memory  y is a copy of w, so that no later layer can write over a parameter; stashes nothing; backward reads dy only
source  Caffe parameter_layer.hpp.  The blob starts at 0, as Caffe has no filler for it, and is given by weights
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from layermem import ops
from layermem.errors import InputError
from layermem.layers.base import Layer, Step, Tensor, layer
from layermem.proto import schema


@layer("Parameter")
class Parameter(Layer):
    has_items = False
    bottom_range = (0, 0)

    def setup(self) -> None:
        shape = tuple(self.param.parameter_param.shape.dim)
        if not shape:
            raise InputError("has no shape; give parameter_param { shape { dim: .. } }")
        self.params = (self.make_param(0, shape, schema.FillerParameter()),)
        y = Tensor(shape)
        self.tops = (y,)
        self.record = ops.Parameter(y)

    def forward(self) -> Step:
        return Step("forward", ("w0",), ("y0",))

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        return (Step("wgrad", ("dy0",), ("dw0",)),) if "dw0" in wants else ()
