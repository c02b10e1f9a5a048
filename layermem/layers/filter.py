"""Filter: keeps the items of its bottoms at which the last bottom, the selector, is not 0.

    x{i} [N, ..], selector [N, 1, ..] -> y{i} [N', ..],  N' the number of items selected
    memory  planned for the largest tops, N items; stashes nothing, backward reads dy and the selector
    source  Caffe filter_layer.cpp, which gives its tops N items too until the first batch is known

N' depends on the data.  Plans decide every address before the first step, and later layers and losses would count
items that are absent; therefore no device runs this layer.  Nets with it can be shown, planned and compared.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from layermem import ops
from layermem.errors import InputError
from layermem.layers.base import Layer, Step, layer, roles


@layer("Filter")
class Filter(Layer):
    bottom_range = (2, None)
    top_range = (1, None)

    def setup(self) -> None:
        *items, selector = self.bottoms
        if len(self.param.top) != len(items):
            raise InputError(
                f"has {len(self.param.top)} tops for {len(items)} bottoms and a selector; give one top for each bottom "
                "but the last"
            )
        if not selector.shape or prod(selector.shape[1:]) != 1:
            raise InputError(f"has a selector of shape {selector}; give one number for each item: N x 1 x 1 x 1")
        for name, x in zip(self.param.bottom, items):
            if x.shape[:1] != selector.shape[:1]:
                raise InputError(f"selects from '{name}' of shape {x} by {selector}; make the batch sizes equal")
        self.tops = tuple(items)
        self.record = ops.Filter(len(items))

    def forward(self) -> Step:
        return Step("forward", roles("x", len(self.bottoms)), roles("y", len(self.tops)))

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        numbers = [i for i in range(len(self.tops)) if f"dx{i}" in wants]
        if not numbers:
            return ()
        reads = (f"x{len(self.tops)}", *(f"dy{i}" for i in numbers))
        return (Step("backward", reads, tuple(f"dx{i}" for i in numbers)),)
