"""AffineNorm: the launches of a BatchNorm with its Scale, and separate moving averages.

A training forward computes the batch's mean and variance as averages in the workspace with factor 0 for the old values.
These move the averages of the layer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from layermem.backends.cuda import normalization
from layermem.backends.cuda.base import FLOAT, CudaCall, Workspace, kernel
from layermem.backends.cuda.eltwise import combine
from layermem.backends.cuda.fill import fill
from layermem.backends.cuda.support.launch import Launch
from layermem.ops import AffineNorm, Fill, MovingAverage, Tensor
from layermem.ops.affine_norm import AS_FUSED, AVERAGES
from layermem.utils.units import aligned


def filled(call: CudaCall, address: int, count: int, value: float) -> Iterator[Launch]:
    yield from fill(Fill(value), replace(call, addresses={"y0": address}, counts={"y0": count}, accumulated=()))


def fused_bytes(op: AffineNorm, roles: Collection[str]) -> int:
    return aligned(normalization.batch_norm_scale_forward_workspace_bytes(op.fused, roles))


def forward_workspace_bytes(op: AffineNorm, roles: Collection[str]) -> int:
    """Bytes of two vectors of statistics and a weight, in addition to the workspace of the fused op, if that runs."""
    own = 2 * aligned(FLOAT * op.channels) + aligned(FLOAT)
    return own if op.global_stats else fused_bytes(op, roles) + own


@kernel(AffineNorm, "forward", workspace=forward_workspace_bytes)
def affine_norm_forward(op: AffineNorm, call: CudaCall) -> Iterator[Launch]:
    if op.global_stats:
        workspace, nbytes = Workspace(call.workspace), FLOAT * op.channels
        mean, inv_std, weight = workspace.take(nbytes), workspace.take(nbytes), workspace.take(FLOAT)
        yield from global_statistics(op, call, mean, inv_std, weight)
        epilogue = normalization.affine_relu(call.renamed(AS_FUSED, without=AVERAGES), False)
        yield normalization.normalize(op.fused.norm, call["y0"], call["x0"], mean, inv_std, epilogue=epilogue)
        return
    workspace, nbytes = Workspace(call.workspace + fused_bytes(op, call.addresses)), FLOAT * op.channels
    mean, variance, weight = workspace.take(nbytes), workspace.take(nbytes), workspace.take(FLOAT)
    yield from normalization.batch_norm_scale_forward(
        op.fused, call.renamed(AS_FUSED, without=AVERAGES, w0=mean, w1=variance, w2=weight)
    )
    if op.kept is None:
        return
    for of_batch, share in ((mean, op.share), (variance, op.share * op.biased)):
        yield combine("eltwise_sum", of_batch, [of_batch], op.channels, coefficients=(share,))
    one = MovingAverage(op.kept, op.channels, 1)
    yield normalization.move_averages(one, call.step_scalars, (call["w2"], call["w3"], 0), (mean, variance, 0))


def global_statistics(op: AffineNorm, call: CudaCall, mean: int, inv_std: int, weight: int) -> Iterator[Launch]:
    """Compute mean and inv_std from the averages, whose weight is 1."""
    yield from filled(call, weight, 1, 1.0)
    averages = {"w0": call["w2"], "w1": call["w3"], "w2": weight}
    yield normalization.global_statistics(op.fused.norm, replace(call, addresses=averages), mean, inv_std)


@kernel(AffineNorm, "recompute")
def affine_norm_recompute(op: AffineNorm, call: CudaCall) -> Iterator[Launch]:
    yield from normalization.batch_norm_scale_recompute(op.fused, call.renamed(AS_FUSED, without=AVERAGES))


def backward_workspace_bytes(op: AffineNorm, roles: Collection[str]) -> int:
    if op.global_stats:
        return 3 * aligned(FLOAT * op.channels) + aligned(FLOAT)
    return normalization.batch_norm_scale_backward_workspace_bytes(op.fused, roles)


@kernel(AffineNorm, "backward", workspace=backward_workspace_bytes)
def affine_norm_backward(op: AffineNorm, call: CudaCall) -> Iterator[Launch]:
    if not op.global_stats:
        yield from normalization.batch_norm_scale_backward(op.fused, call.renamed(AS_FUSED, without=AVERAGES))
        return
    workspace, nbytes = Workspace(call.workspace), FLOAT * op.channels
    mean, inv_std, slope = (workspace.take(nbytes) for _ in range(3))
    yield from global_statistics(op, call, mean, inv_std, workspace.take(FLOAT))
    row = replace(op.fused.norm, x=Tensor((1, op.channels)))
    yield normalization.normalize(row, slope, call["w0"], 0, inv_std)  # slope = w0 / sqrt(w3 + eps)
    yield normalization.normalize(op.fused.norm, call["dx0"], call["dy0"], 0, slope, call.accumulates("dx0"))
