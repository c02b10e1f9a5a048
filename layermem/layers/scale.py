"""Scale and Bias: a factor and a term that span some axes of a blob.

Scale      y = x f [+ b],  Bias  y = x + b;  f and b are learned, or the second bottom, and span some axes of x
memory     no stash; the gradient of f reads x, that of x reads f
source     Caffe scale_layer.cpp, bias_layer.cpp
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from layermem import ops
from layermem.errors import InputError
from layermem.layers.base import DX_OVER_DY, DX_OVER_X, Y_OVER_X, Layer, Step, layer
from layermem.proto import schema


class BroadcastOperand(NamedTuple):
    """The operand of a BroadcastLayer; the fields are those of ops.Scale and ops.Bias."""

    shape: tuple[int, ...]
    operand: str
    view: tuple[int, ...]
    summed: tuple[int, ...]


class BroadcastLayer(Layer):
    """Combines x with an operand that spans its axes from `axis` on: the second bottom, or a parameter."""

    family = "normalization"
    bottom_range = (1, 2)
    inplace = True

    def _broadcast(self, axis: int, num_axes: int) -> BroadcastOperand:
        x = self.bottoms[0]
        start = self.axis(axis)
        if len(self.bottoms) == 2:
            shape = self.bottoms[1].shape
            start = start if shape else 0
            if x.shape[start : start + len(shape)] != shape:
                raise InputError(
                    f"has a second bottom of {self.bottoms[1]}, which must equal the axes of its first ({x}) "
                    f"from axis {start} on: change 'axis' or the bottom"
                )
        else:
            if num_axes < -1 or start + num_axes > len(x.shape):
                raise InputError(
                    f"spans {num_axes} axes from axis {start}, but its bottom has {len(x.shape)}: "
                    f"use num_axes -1 to {len(x.shape) - start}"
                )
            shape = x.shape[start:] if num_axes == -1 else x.shape[start : start + num_axes]
        end = start + len(shape)
        return BroadcastOperand(
            shape,
            operand="x1" if len(self.bottoms) == 2 else "w0",
            view=(1,) * start + shape + (1,) * (len(x.shape) - end),
            summed=tuple(i for i in range(len(x.shape)) if not start <= i < end),
        )


@layer("Scale")
class Scale(BroadcastLayer):
    right_in_place = True
    record: ops.Scale

    def setup(self) -> None:
        p, bias = self.param.scale_param, None
        shape, operand, view, summed = self._broadcast(p.axis, p.num_axes)
        if operand == "w0":
            filler = p.filler if p.HasField("filler") else schema.FillerParameter(type="constant", value=1)
            self.params = (self.make_param(0, shape, filler),)
        if p.bias_term:
            bias = f"w{len(self.params)}"
            self.params += (self.make_param(len(self.params), shape, p.bias_filler),)
        self.tops = self.bottoms[:1]
        self.caffe_reads = "" if self.works_in_place else "x"
        self.record = ops.Scale(self.bottoms[0], operand, view, summed, bias)

    @property
    def caffe_state_bytes(self) -> int:
        """Bytes of the input, which an output in place overwrites."""
        return self.bottoms[0].nbytes if self.works_in_place else 0

    def forward(self) -> Step:
        op = self.record
        biases = (op.bias,) if op.bias else ()
        flops = op.x.count * (1 + len(biases))
        return Step("forward", ("x0", op.operand, *biases), ("y0",), overlays=(Y_OVER_X,), flops=flops)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        op = self.record
        reads, overlays, flops = ["dy0"], [], 0
        if "dx0" in wants:
            reads.append(op.operand)
            overlays.append(DX_OVER_DY)
            flops += 1
        if f"d{op.operand}" in wants:
            reads.insert(0, "x0")
            flops += 2
            if "dx0" in wants:
                overlays.append(DX_OVER_X)
        if op.bias and f"d{op.bias}" in wants:
            flops += 1
        writes = tuple(role for role in ("dx0", f"d{op.operand}", f"d{op.bias}") if role in wants)
        return (Step("backward", tuple(reads), writes, (), tuple(overlays), flops * op.x.count),)


@layer("Bias")
class Bias(BroadcastLayer):
    right_in_place = True
    record: ops.Bias

    def setup(self) -> None:
        p = self.param.bias_param
        shape, operand, view, summed = self._broadcast(p.axis, p.num_axes)
        if operand == "w0":
            self.params = (self.make_param(0, shape, p.filler),)
        self.tops = self.bottoms[:1]
        self.record = ops.Bias(self.bottoms[0], operand, view, summed)

    def forward(self) -> Step:
        op = self.record
        return Step("forward", ("x0", op.operand), ("y0",), overlays=(Y_OVER_X,), flops=op.x.count)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        gradient = f"d{self.record.operand}"
        writes = tuple(role for role in ("dx0", gradient) if role in wants)
        flops = self.record.x.count if gradient in wants else 0
        overlays = (DX_OVER_DY,) if "dx0" in wants else ()
        return (Step("backward", ("dy0",), writes, overlays=overlays, flops=flops),)
