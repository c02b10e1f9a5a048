"""BatchNorm, and the fusion of a BatchNorm with the Scale, residual and ReLU that follow it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from layermem.ops.base import MIXES, PIECES, Along, Averages, BatchSlice, EndsInRelu, OpRecord, Tensor, epilogue_name
from layermem.ops.scale import Scale

# The passes over the items, for slices of a batch (graph/batch_norm_passes.py).
OF_BATCH = frozenset({"mean", "inv_std"})
PASSES = {
    "statistics": Along(sums=OF_BATCH | {"w0", "w1", "w2"}),
    "recompute": Along(whole=OF_BATCH),
    "gradient_sums": Along(sums=frozenset({"sums", "dw3", "dw4"}), whole=OF_BATCH),
    "input_gradient": Along(whole=OF_BATCH | {"sums"}),
}


@dataclass(frozen=True)
class BatchNorm(OpRecord):
    """y = (x - mean) / sqrt(var + eps), a channel at a time.

    forward     y0, mean, inv_std [C] from x0, and moves the averages w0, w1 [C], w2 [1] by `fraction`;
                with global_stats y0 from x0 and the averages
                with the role moments, the statistics are merged from those moments (Conv) instead of read from x0
    recompute   y0 from x0, mean, inv_std: the same bits, and no average moves
    backward    dx0 from x0, mean, inv_std, dy0; with global_stats from w1, w2, dy0
                with the role norm_sums, the sums are merged from these (Conv)

    In two passes, forward is `statistics` and `recompute`, and backward is two steps as well:

    statistics      mean, inv_std from x0, and moves the averages
    gradient_sums   sums [2][C] from x0, mean, inv_std, dy0, in the device's form: input for input_gradient
    input_gradient  dx0 from x0, mean, inv_std, sums, dy0
    """

    x: Tensor
    eps: float
    fraction: float
    global_stats: bool = False

    @property
    def channels(self) -> int:
        return self.x.shape[1]

    @property
    def per_channel(self) -> int:
        """Elements of one channel in the whole batch, even if this op computes a slice of it."""
        here = self.x.count // self.channels
        return here if self.batch_slice is None else here * self.batch_slice.items // self.batch_slice.count

    @property
    def averages(self) -> tuple[Averages, ...]:
        return () if self.global_stats else (Averages(("w0", "w1", "w2"), self.fraction),)

    def of_one_batch(self) -> BatchNorm:
        return replace(self, fraction=0.0)

    def over_items(self, step: str) -> Along:
        return PIECES if self.global_stats else PASSES.get(step, MIXES)


@dataclass(frozen=True)
class BatchNormScale(EndsInRelu):
    """A training BatchNorm and its Scale with bias, then optionally a residual and a ReLU.

    forward     y0, mean, inv_std from x0, w3 (factor), w4 (bias) [, x1]; moves w0, w1, w2; writes mask where declared
                if norm has global_stats: y0 from x0, w0 .. w4, without residual, relu or backward
    recompute   y0 [, mask] from x0, mean, inv_std, w3, w4 [, x1]
    backward    dx0, dw3, dw4 from x0, mean, inv_std, w3, w4, dy0; the sign that a relu needs is recomputed from them

    In two passes as BatchNorm, with w3 and w4 in both steps of backward; gradient_sums also makes dw3 and dw4."""

    norm: BatchNorm
    scale: Scale
    relu: bool = False
    residual: bool = False

    @property
    def x(self) -> Tensor:
        return self.norm.x

    @property
    def fusion(self) -> str | None:
        if self.residual:
            return epilogue_name("BatchNormScale", residual=True, relu=self.relu)
        return "BatchNormScale"

    def over_items(self, step: str) -> Along:
        return self.norm.over_items(step)

    @property
    def averages(self) -> tuple[Averages, ...]:
        return self.norm.averages

    def of_one_batch(self) -> BatchNormScale:
        return replace(self, norm=self.norm.of_one_batch())

    def of_slice(self, batch_slice: BatchSlice, whole: BatchNormScale) -> BatchNormScale:
        norm, scale = replace(self.norm, batch_slice=batch_slice), replace(self.scale, batch_slice=batch_slice)
        return replace(super().of_slice(batch_slice, whole), norm=norm, scale=scale)


@dataclass(frozen=True)
class MovingAverage(OpRecord):
    """average   w0, w1 [C] [, w2 [1]] move by each row of x0, x1 [N][C] [, x2 [N][1]] in turn, as N / ops batches in
    sequence would move them: w = kept w + row.

    ops       number of ops of the net that move these averages; each leaves one row per batch
    batches   batches of all ranks; where the context has `averaged`, that number of them counts
    """

    kept: float
    channels: int
    batches: int
    ops: int = 1
