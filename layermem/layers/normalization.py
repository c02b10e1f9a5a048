"""BatchNorm: statistics that the elements of a channel share.

BatchNorm  y = (x - mean) / sqrt(var + eps), a channel at a time; var is the biased one.  With scale_bias of NVCaffe:
           y = scale (x - mean) / sqrt(var + eps) + bias, the same op as BatchNorm and Scale make
memory     two numbers per channel; backward recomputes the normalized x from x, where Caffe keeps it
source     Caffe batch_norm_layer.cpp; NVIDIA/caffe batch_norm_layer.cpp
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from layermem import ops
from layermem.errors import InputError
from layermem.layers.base import DX_OVER_DY, DX_OVER_X, Y_OVER_X, Layer, Param, Step, Tensor, layer
from layermem.proto import schema

NVCAFFE_EPS = 1e-5  # smallest eps in NVCaffe and cuDNN


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
            return Step("forward", reads, ("y0",), overlays=(Y_OVER_X,), flops=(2 + more) * count)
        writes, flops = ("y0", *self.stash), (6 + more) * count
        return Step("forward", ("x0", *affine), writes, averages, overlays=(Y_OVER_X,), flops=flops)

    def recompute(self) -> Step:
        if self.norm.global_stats:
            return self.forward()
        flops = (2 + len(self.affine)) * self.bottoms[0].count
        return Step("recompute", ("x0", *self.stash, *self.affine), ("y0",), overlays=(Y_OVER_X,), flops=flops)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        count, writes = self.bottoms[0].count, tuple(role for role in ("dx0", "dw3", "dw4") if role in wants)
        if self.norm.global_stats:
            if self.affine:  # in TEST only, where nothing runs backward
                return ()
            return (Step("backward", ("w1", "w2", "dy0"), ("dx0",), overlays=(DX_OVER_DY,), flops=count),)
        reads = ("x0", *self.stash, *self.affine, "dy0")
        overlays = (DX_OVER_DY, DX_OVER_X) if "dx0" in writes else ()
        return (Step("backward", reads, writes, (), overlays, (10 + 2 * len(self.affine)) * count),)
