"""LRN, BatchNorm, Scale and Bias: statistics and factors that many elements share.

LRN        y = x scale^-beta,  scale = k + alpha/n sum x^2 over n channels around (within a channel: 1 + alpha/n^2
           sum x^2 over the n x n pixels around; Caffe takes no k there)
BatchNorm  y = (x - mean) / sqrt(var + eps), a channel at a time; var is the biased one.  With scale_bias of NVCaffe:
           y = scale (x - mean) / sqrt(var + eps) + bias, the same op as BatchNorm and Scale make
Scale      y = x f [+ b],  Bias  y = x + b;  f and b are learned, or the second bottom, and span some axes of x
memory     BatchNorm stashes two numbers per channel, the others nothing; backward recomputes the rest from x, where
           Caffe keeps blobs as large as x (the scale of an LRN, the normalized x of a BatchNorm)
source     Caffe lrn_layer.cpp, batch_norm_layer.cpp, scale_layer.cpp, bias_layer.cpp; NVIDIA/caffe batch_norm_layer.cpp
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from layermem import ops
from layermem.errors import InputError
from layermem.layers.base import Layer, Overlay, Param, Step, Tensor, layer
from layermem.proto import schema

WITHIN_CHANNEL = 1
NVCAFFE_EPS = 1e-5  # smallest eps in NVCaffe and cuDNN

FORWARD = Overlay("y0", "x0", "forward")
GRADIENT = Overlay("dx0", "dy0", "gradient")
INTRA = Overlay("dx0", "x0", "intra")


@layer("LRN")
class LRN(Layer):
    """Across channels, kernels read all channels of a pixel before they write one, which permits the overlays."""

    family = "normalization"
    bottom_forms = ("N,C,H,W",)
    caffe_reads = "xy"
    record: ops.LRN
    inplace = True

    def setup(self) -> None:
        p = self.param.lrn_param
        x = self.bottoms[0]
        if len(x.shape) != 4:
            raise InputError(f"has a bottom of {len(x.shape)} axes ({x}); LRN takes N x C x H x W: Reshape it first")
        if p.local_size % 2 == 0:
            raise InputError(f"has local_size {p.local_size}; it must be odd: use {p.local_size + 1}")
        across, size = p.norm_region != WITHIN_CHANNEL, p.local_size
        alpha = p.alpha / (size if across else size**2)
        reach = x.shape[1] if across else max(x.shape[2:])
        size = min(size, 2 * reach - 1)  # this window covers everything; a wider one adds zeros beyond the border
        self.record = ops.LRN(x, across, size, alpha, p.beta, p.k if across else 1.0)
        self.tops = (x,)
        sums = size if across else 2 * size  # within a channel: rows, then columns
        self.flops = x.count * (sums + 5)  # square, sums, k + alpha *, power, product

    @property
    def caffe_state_bytes(self) -> int:
        """Bytes, across channels, of the scale of each element; within them, of the blobs of an inner net of split,
        square, pool and power."""
        return self.bottoms[0].nbytes * (1 if self.param.lrn_param.norm_region != WITHIN_CHANNEL else 5)

    def forward(self) -> Step:
        overlays = (FORWARD,) if self.record.across else ()
        return Step("forward", ("x0",), ("y0",), overlays=overlays, flops=self.flops)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        overlays = (GRADIENT, INTRA) if self.record.across else ()
        return (Step("backward", ("x0", "dy0"), ("dx0",), overlays=overlays, flops=2 * self.flops),)


@layer("BatchNorm")
class BatchNorm(Layer):
    """Parameters: sums of means [C], sums of unbiased variances [C], their divisor [1] [, scale [C], bias [C]].

    A training forward stashes the batch's mean and 1 / sqrt(var + eps), and updates the three sums.  A recomputation
    reads the stash instead: the same bits, and no update.  With global_stats, the default in TEST, the moving averages
    replace the statistics of the batch.
    """

    family = "normalization"
    right_in_place = True
    record: ops.BatchNorm | ops.BatchNormScale
    inplace = True

    def setup(self) -> None:
        p = self.param.batch_norm_param
        x = self.bottoms[0]
        if len(x.shape) < 2:
            raise InputError(f"has a bottom of {len(x.shape)} axes; BatchNorm needs at least 2: N x C")
        global_stats = p.use_global_stats if p.HasField("use_global_stats") else self.phase == schema.TEST
        channels = x.shape[1]
        self.tops = (x,)
        self.params = tuple(self._average(i, size) for i, size in enumerate((channels, channels, 1)))
        if not global_stats:
            self.stash = {"mean": Tensor((channels,)), "inv_std": Tensor((channels,))}
        self.record = ops.BatchNorm(x, p.eps, p.moving_average_fraction, global_stats)
        if p.scale_bias or p.HasField("scale_filler") or p.HasField("bias_filler"):
            self.record = self._scaled(self.record)

    @property
    def caffe_state_bytes(self) -> int:
        """Bytes of the normalized x, of its standard deviation at every element, and in place of a copy of the
        gradient."""
        return (2 + (self.works_in_place and self.phase == schema.TRAIN)) * self.bottoms[0].nbytes

    def _average(self, index: int, size: int) -> Param:
        """Return a moving average: it starts at 0, and no solver updates it, whatever its `param { }` (as in Caffe's
        upgrade)."""
        param = self.make_param(index, (size,), schema.FillerParameter())
        return replace(param, lr_mult=0.0, decay_mult=0.0, learned=False)

    def _scaled(self, norm: ops.BatchNorm) -> ops.BatchNormScale:
        """The op with scale and bias of NVCaffe, parameters 3 and 4."""
        if norm.global_stats and self.phase == schema.TRAIN:
            raise InputError(
                "trains scale and bias over averages, which NVCaffe does not; remove use_global_stats, or write a "
                "BatchNorm and a Scale layer"
            )
        p, x = self.param.batch_norm_param, norm.x
        scale = p.scale_filler if p.HasField("scale_filler") else schema.FillerParameter(type="constant", value=1)
        self.params += tuple(self.make_param(i, (x.shape[1],), f) for i, f in enumerate((scale, p.bias_filler), 3))
        rest = tuple(i for i in range(len(x.shape)) if i != 1)
        view = tuple(1 if i in rest else size for i, size in enumerate(x.shape))
        norm = replace(norm, eps=max(norm.eps, NVCAFFE_EPS))
        return ops.BatchNormScale(norm, ops.Scale(x, "w0", view, rest, "w1"))  # roles of a Scale alone

    @property
    def norm(self) -> ops.BatchNorm:
        return self.record.norm if isinstance(self.record, ops.BatchNormScale) else self.record

    @property
    def affine(self) -> tuple[str, ...]:
        """The roles of scale and bias."""
        return ("w3", "w4") if isinstance(self.record, ops.BatchNormScale) else ()

    def forward(self) -> Step:
        count, averages, affine = self.bottoms[0].count, ("w0", "w1", "w2"), self.affine
        more = len(affine)
        if self.norm.global_stats:
            reads = ("x0", *averages, *affine)
            return Step("forward", reads, ("y0",), overlays=(FORWARD,), flops=(2 + more) * count)
        writes, flops = ("y0", *self.stash), (6 + more) * count
        return Step("forward", ("x0", *affine), writes, averages, overlays=(FORWARD,), flops=flops)

    def recompute(self) -> Step:
        if self.norm.global_stats:
            return self.forward()
        flops = (2 + len(self.affine)) * self.bottoms[0].count
        return Step("recompute", ("x0", *self.stash, *self.affine), ("y0",), overlays=(FORWARD,), flops=flops)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        count, writes = self.bottoms[0].count, tuple(role for role in ("dx0", "dw3", "dw4") if role in wants)
        if self.norm.global_stats:
            if self.affine:  # in TEST only, where nothing runs backward
                return ()
            return (Step("backward", ("w1", "w2", "dy0"), ("dx0",), overlays=(GRADIENT,), flops=count),)
        reads = ("x0", *self.stash, *self.affine, "dy0")
        overlays = (GRADIENT, INTRA) if "dx0" in writes else ()
        return (Step("backward", reads, writes, (), overlays, (10 + 2 * len(self.affine)) * count),)


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
        return Step("forward", ("x0", op.operand, *biases), ("y0",), overlays=(FORWARD,), flops=flops)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        op = self.record
        reads, overlays, flops = ["dy0"], [], 0
        if "dx0" in wants:
            reads.append(op.operand)
            overlays.append(GRADIENT)
            flops += 1
        if f"d{op.operand}" in wants:
            reads.insert(0, "x0")
            flops += 2
            if "dx0" in wants:
                overlays.append(INTRA)
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
        return Step("forward", ("x0", op.operand), ("y0",), overlays=(FORWARD,), flops=op.x.count)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        gradient = f"d{self.record.operand}"
        writes = tuple(role for role in ("dx0", gradient) if role in wants)
        flops = self.record.x.count if gradient in wants else 0
        overlays = (GRADIENT,) if "dx0" in wants else ()
        return (Step("backward", ("dy0",), writes, overlays=overlays, flops=flops),)
