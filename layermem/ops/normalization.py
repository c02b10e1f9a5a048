"""LRN, BatchNorm, Scale, Bias, and the fusion of a BatchNorm with the Scale, residual and ReLU that follow it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from layermem.ops.base import (
    MIXES,
    PIECES,
    Along,
    Averages,
    BatchSlice,
    EndsInRelu,
    OpRecord,
    PerItem,
    Tensor,
    epilogue_name,
)

# The passes over the items, for slices of a batch (graph/batch_norm_passes.py).
OF_BATCH = frozenset({"mean", "inv_std"})
PASSES = {
    "statistics": Along(sums=OF_BATCH | {"w0", "w1", "w2"}),
    "recompute": Along(whole=OF_BATCH),
    "gradient_sums": Along(sums=frozenset({"sums", "dw3", "dw4"}), whole=OF_BATCH),
    "input_gradient": Along(whole=OF_BATCH | {"sums"}),
}


@dataclass(frozen=True)
class LRN(PerItem):
    """y = x s^-beta with s = k + alpha (sum of squares around), over `size` channels or, within a channel, size x size
    pixels.  alpha is Caffe's divided by the number of elements summed.

    forward   y0 from x0        backward   dx0 from x0, dy0
    """

    x: Tensor
    across: bool
    size: int
    alpha: float
    beta: float
    k: float


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
        return here if self.part is None else here * self.part.items // self.part.count

    @property
    def averages(self) -> tuple[Averages, ...]:
        return () if self.global_stats else (Averages(("w0", "w1", "w2"), self.fraction),)

    def of_one_batch(self) -> BatchNorm:
        return replace(self, fraction=0.0)

    def over_items(self, step: str) -> Along:
        return PIECES if self.global_stats else PASSES.get(step, MIXES)


@dataclass(frozen=True)
class Scale(OpRecord):
    """y = x f [+ b], where f and b span some axes of x.

    operand   role of f: "x1", or "w0" where it is learned      bias     role of b, or None
    view      shape of f with a 1 for each axis that it does not span
    summed    the axes that f does not span

    forward   y0 from x0, f, b      backward   dx0, df, db from dy0, x0, f
    """

    x: Tensor
    operand: str
    view: tuple[int, ...]
    summed: tuple[int, ...]
    bias: str | None = None

    def over_items(self, step: str) -> Along:
        return sums_of_operands(self.operand, self.bias, self.summed, step)


@dataclass(frozen=True)
class Bias(OpRecord):
    """y = x + b; fields as in Scale, with b at `operand`.   forward   y0 from x0, b     backward   dx0, db from dy0"""

    x: Tensor
    operand: str
    view: tuple[int, ...]
    summed: tuple[int, ...]

    def over_items(self, step: str) -> Along:
        return sums_of_operands(self.operand, None, self.summed, step)


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

    def of_slice(self, part: BatchSlice, whole: BatchNormScale) -> BatchNormScale:
        norm, scale = replace(self.norm, part=part), replace(self.scale, part=part)
        return replace(super().of_slice(part, whole), norm=norm, scale=scale)


def sums_of_operands(operand: str, bias: str | None, summed: tuple[int, ...], step: str) -> Along:
    """OpRecord.over_items of an op whose `operand` and `bias` span all axes but `summed`."""
    if 0 not in summed:
        return PIECES if operand.startswith("x") else MIXES
    if operand.startswith("x"):
        return MIXES
    gradients = frozenset(f"d{role}" for role in (operand, bias) if role is not None)
    return Along(gradients) if step == "backward" else PIECES
