"""Eltwise: bottoms of one shape, combined element by element.

    SUM   y = sum coeff_i x_i  (coeff 1)     dx_i = coeff_i dy                  backward reads nothing but dy
    PROD  y = prod x_i                       dx_i = dy prod of the others       and the others
    MAX   y = max x_i                        dx_i = dy where x_i won            and the winner's index, one stashed byte

The last of several equal maxima wins on every device, as in Caffe's CUDA kernel.  Caffe's CPU code differs for three
bottoms and more: the second wins a tie with the first, and later bottoms lose ties.  A product's gradient is
always the product of the others, which is Caffe's `stable_prod_grad`; the unstable form, y / x_i, is the same number
where it has one.    source  Caffe eltwise_layer.cpp
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from layermem import ops
from layermem.errors import InputError
from layermem.layers.activation import elementwise_overlays
from layermem.layers.base import CAFFE_VALUE_BYTES, Layer, Overlay, Step, layer, roles

OPERATIONS = ("PROD", "SUM", "MAX")  # by their number in EltwiseParameter.EltwiseOp


@layer("Eltwise")
class Eltwise(Layer):
    record: ops.Eltwise
    bottom_range = (2, None)
    inplace = True

    def setup(self) -> None:
        p = self.param.eltwise_param
        operation = OPERATIONS[p.operation]
        first = self.bottoms[0]
        for i, x in enumerate(self.bottoms):
            if x.shape != first.shape:
                names = self.param.bottom
                raise InputError(
                    f"combines '{names[0]}' of shape {first} with '{names[i]}' of shape {x}; make the shapes equal"
                )
        if p.coeff and operation != "SUM":
            raise InputError(f"gives coeff to a {operation}; only SUM takes them: remove the 'coeff:' lines")
        if len(p.coeff) not in (0, len(self.bottoms)):
            raise InputError(f"gives {len(p.coeff)} coeff for {len(self.bottoms)} bottoms; give one for each, or none")
        coeffs: tuple[float, ...] = tuple(p.coeff) or (1.0,) * len(self.bottoms)
        self.tops = (first,)
        if operation == "MAX":
            self.stash = {"winner": first.of("uint8" if len(self.bottoms) <= 256 else "int32")}
        if operation == "PROD":  # the unstable form divides y
            self.caffe_reads = "x" if p.stable_prod_grad else "xy"
        self.record = ops.Eltwise(operation, first, len(self.bottoms), coeffs)

    @property
    def caffe_state_bytes(self) -> int:
        """Bytes of the index of the bottom that each maximum comes from."""
        return CAFFE_VALUE_BYTES * self.tops[0].count if self.record.operation == "MAX" else 0

    def forward(self) -> Step:
        xs = roles("x", len(self.bottoms))
        overlays = tuple(Overlay("y0", x, "forward") for x in xs)
        return Step("forward", xs, ("y0", *self.stash), overlays=overlays, flops=len(xs) * self.tops[0].count)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        numbers = [i for i in range(len(self.bottoms)) if f"dx{i}" in wants]
        if not numbers:
            return ()
        data = self._factors(numbers) if self.record.operation == "PROD" else ()
        overlays = tuple(o for i in numbers for o in elementwise_overlays(f"dx{i}", "dy0", *data))
        reads = (*data, *self.stash, "dy0")
        flops = len(numbers) * max(1, len(data)) * self.tops[0].count
        return (Step("backward", reads, tuple(f"dx{i}" for i in numbers), overlays=overlays, flops=flops),)

    def _factors(self, numbers: Sequence[int]) -> tuple[str, ...]:
        """The bottoms that are a factor of dx{i} for some i in `numbers`: all bottoms, or all but a single one."""
        return tuple(x for i, x in enumerate(roles("x", len(self.bottoms))) if set(numbers) - {i})
