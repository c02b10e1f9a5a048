"""AffineNorm: a BatchNorm with its scale and shift, as forks have it in one layer."""

from __future__ import annotations

from dataclasses import dataclass, replace

from layermem.ops.base import MIXES, PIECES, Along, Averages, OpRecord, Tensor
from layermem.ops.normalization import BatchNorm, BatchNormScale
from layermem.ops.scale import Scale


@dataclass(frozen=True)
class AffineNorm(OpRecord):
    """y = w0 (x - mean) / sqrt(var + eps) + w1, a channel at a time.

    kept           factor of the old average: w2 = kept w2 + share mean, w3 likewise of the biased variance;
                   None: no averages
    global_stats   mean and var are w2 and w3

    forward     y0, mean, inv_std from x0, w0, w1, and moves w2, w3 where there are any;
                with global_stats y0 from x0, w0, w1, w2, w3
    recompute   y0 from x0, mean, inv_std, w0, w1: the same bits, and no average moves
    backward    dx0, dw0, dw1 from x0, mean, inv_std, w0, w1, dy0; with global_stats dx0 from w0, w3, dy0
    """

    x: Tensor
    eps: float
    kept: float | None
    global_stats: bool = False
    share: float = 1.0

    @property
    def channels(self) -> int:
        return self.x.shape[1]

    @property
    def fused(self) -> BatchNormScale:
        """The BatchNormScale that computes this op without moving averages; its w3 and w4 are w0 and w1 here."""
        rest = tuple(i for i in range(len(self.x.shape)) if i != 1)
        view = tuple(1 if i in rest else size for i, size in enumerate(self.x.shape))
        return BatchNormScale(BatchNorm(self.x, self.eps, 0.0), Scale(self.x, "w3", view, rest, "w4"))

    @property
    def averages(self) -> tuple[Averages, ...]:
        return () if self.kept is None else (Averages(("w2", "w3"), self.kept),)

    def of_one_batch(self) -> AffineNorm:
        return self if self.kept is None else replace(self, kept=0.0)

    @property
    def biased(self) -> float:
        """The factor from the unbiased variance, whose average `fused` keeps, to the biased one."""
        count = self.fused.norm.per_channel
        return (count - 1) / count if count > 1 else 1.0

    def over_items(self, step: str) -> Along:
        return PIECES if self.global_stats else MIXES


AS_FUSED = {"w0": "w3", "w1": "w4", "dw0": "dw3", "dw1": "dw4"}  # roles of AffineNorm in AffineNorm.fused
AVERAGES = ("w2", "w3")  # roles of AffineNorm that AffineNorm.fused lacks
