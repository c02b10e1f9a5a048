"""Axpy: a blob scaled by channel, added to another.

y = a x + b,  a [N,C] or [N,C,1,1], x and b [N,C,H,W]
memory  stashes nothing; backward reads a and x.  The gradient of b is dy, and may take its bytes
source  axpy_layer.cpp of SENet's Caffe (hujie-frank/SENet)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from layermem import ops
from layermem.errors import InputError
from layermem.layers.base import Layer, Overlay, Step, layer


@layer("Axpy")
class Axpy(Layer):
    bottom_range = (3, 3)

    def setup(self) -> None:
        a, x, b = self.bottoms
        if len(x.shape) != 4 or b.shape != x.shape or a.shape not in (x.shape[:2], (*x.shape[:2], 1, 1)):
            raise InputError(f"has bottoms of {a}, {x} and {b}; give N x C, then N x C x H x W twice")
        self.tops = (x,)
        self.record = ops.Axpy(x)

    def forward(self) -> Step:
        overlays = (Overlay("y0", "x1", "forward"),)
        return Step("forward", ("x0", "x1", "x2"), ("y0",), overlays=overlays, flops=2 * self.tops[0].count)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        steps = []
        writes = tuple(role for role in ("dx0", "dx1") if role in wants)
        if writes:
            data = (*(("x0",) if "dx1" in writes else ()), *(("x1",) if "dx0" in writes else ()))
            overlays = [Overlay("dx1", "dy0", "gradient")] if "dx1" in writes else []
            if len(writes) == 2:
                overlays.append(Overlay("dx1", "x1", "intra"))
            flops = 2 * len(writes) * self.tops[0].count
            steps.append(Step("backward", (*data, "dy0"), writes, overlays=tuple(overlays), flops=flops))
        if "dx2" in wants:
            steps.append(Step("residual_backward", ("dy0",), ("dx2",), overlays=(Overlay("dx2", "dy0", "gradient"),)))
        return steps
