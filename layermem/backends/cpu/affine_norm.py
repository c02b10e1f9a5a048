"""AffineNorm: the launches of a BatchNorm with its Scale, and separate moving averages.

The workspace of a training forward ends in a mean, a variance [C] and a weight [1]: averages without old values, which
hold the batch's statistics afterwards.  They move the averages of the layer by its share.
"""

from __future__ import annotations

from collections.abc import Collection

from layermem.backends.cpu import normalization
from layermem.backends.cpu.base import CpuCall, Launch, Launches, kernel
from layermem.backends.cpu.support.launch import launch, query
from layermem.ops import AffineNorm
from layermem.ops.affine_norm import AS_FUSED, AVERAGES
from layermem.utils.units import aligned


def fused_bytes(op: AffineNorm, roles: Collection[str]) -> int:
    return aligned(normalization.batch_norm_scale_forward_workspace_bytes(op.fused, roles))


def forward_workspace_bytes(op: AffineNorm, roles: Collection[str]) -> int:
    if op.global_stats:
        return query("batch_norm_global_workspace_bytes", normalization.channels(op.fused)) + aligned(4)
    of_batch = 2 * aligned(4 * op.channels) + aligned(4) if op.kept is not None else 0
    return fused_bytes(op, roles) + of_batch


def fill(address: int, count: int, value: float) -> Launch:
    return launch("pointwise", "fill", count, out=address, alpha=value)


@kernel(AffineNorm, "forward", workspace=forward_workspace_bytes)
def affine_norm_forward(op: AffineNorm, call: CpuCall) -> Launches:
    if op.global_stats:
        return global_forward(op, call)
    if op.kept is None:
        return normalization.fused_forward(op.fused, call.renamed(AS_FUSED, without=AVERAGES), recompute=False)
    mean = call.workspace + fused_bytes(op, call.addresses)
    variance = mean + aligned(4 * op.channels)
    weight = variance + aligned(4 * op.channels)
    inner = call.renamed(AS_FUSED, without=AVERAGES, w0=mean, w1=variance, w2=weight)
    launches = normalization.fused_forward(op.fused, inner, recompute=False)
    return [
        *(launches or ()),
        launch("pointwise", "scale", op.channels, out=mean, a=mean, alpha=op.share),
        launch("pointwise", "scale", op.channels, out=variance, a=variance, alpha=op.share * op.biased),
        launch("move_averages", op.channels, 1, w0=call["w2"], w1=call["w3"], x0=mean, x1=variance, fraction=op.kept),
    ]


def global_forward(op: AffineNorm, call: CpuCall) -> list[Launch]:
    shape = normalization.channels(op.fused)
    one = call.workspace + query("batch_norm_global_workspace_bytes", shape)
    return [
        fill(one, 1, 1.0),
        launch(
            "batch_norm_fused_global_forward",
            shape=shape,
            y=call["y0"],
            x=call["x0"],
            w0=call["w2"],
            w1=call["w3"],
            w2=one,
            factor=call["w0"],
            bias=call["w1"],
            relu=False,
            eps=op.eps,
            workspace=call.workspace,
        ),
    ]


def recompute_workspace_bytes(op: AffineNorm, roles: Collection[str]) -> int:
    return normalization.batch_norm_scale_forward_workspace_bytes(op.fused, roles)


@kernel(AffineNorm, "recompute", workspace=recompute_workspace_bytes)
def affine_norm_recompute(op: AffineNorm, call: CpuCall) -> Launches:
    return normalization.fused_forward(op.fused, call.renamed(AS_FUSED, without=AVERAGES), recompute=True)


def backward_workspace_bytes(op: AffineNorm, roles: Collection[str]) -> int:
    shape = normalization.channels(op.fused)
    if op.global_stats:
        return query("batch_norm_global_workspace_bytes", shape) + aligned(4) + aligned(4 * op.channels)
    return query("batch_norm_fused_workspace_bytes", shape)


@kernel(AffineNorm, "backward", workspace=backward_workspace_bytes)
def affine_norm_backward(op: AffineNorm, call: CpuCall) -> Launches:
    if op.global_stats:
        return global_backward(op, call)
    return normalization.batch_norm_scale_backward(op.fused, call.renamed(AS_FUSED, without=AVERAGES))


def global_backward(op: AffineNorm, call: CpuCall) -> list[Launch]:
    """Compute dx = dy slope, with the slope w0 / sqrt(w3 + eps), which such a BatchNorm derives from w0 as a
    gradient."""
    shape = normalization.channels(op.fused)
    one = call.workspace + query("batch_norm_global_workspace_bytes", shape)
    slope = one + aligned(4)
    return [
        fill(one, 1, 1.0),
        launch(
            "batch_norm_global_backward",
            (1, op.channels, 1),
            dx=slope,
            dy=call["w0"],
            w1=call["w3"],
            w2=one,
            eps=op.eps,
            workspace=call.workspace,
        ),
        launch(
            "scale_backward", shape, dx=call["dx0"], dy=call["dy0"], factor=slope, accumulate_dx=call.accumulates("dx0")
        ),
    ]
