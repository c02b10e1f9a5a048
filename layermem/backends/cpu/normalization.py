"""BatchNorm, and its fusion with the Scale and ReLU that follow it."""

from __future__ import annotations

from collections.abc import Collection

from layermem.backends.cpu.base import CpuCall, Launch, Launches, kernel
from layermem.backends.cpu.support.launch import Channels, launch, query
from layermem.backends.cpu.support.slices import RowsOfBatch, rows_of_batch
from layermem.ops import CARRY, BatchNorm, BatchNormScale, MovingAverage
from layermem.utils.units import aligned


def channels(op: BatchNorm | BatchNormScale) -> Channels:
    return op.x.around(1)


def forward_blobs(op: BatchNorm | BatchNormScale) -> str:
    """Pattern of the blobs that may be in 16 bits: of images, whose channels are contiguous."""
    return "x0|x1|y0" if op.x.around(1)[2] == 1 else ""


def backward_blobs(op: BatchNorm | BatchNormScale) -> str:
    return "x0|dx0|dy0" if op.x.around(1)[2] == 1 else ""


def statistics_bytes(norm: BatchNorm, roles: Collection[str]) -> int:
    """Workspace of mean and inv_std if no backward reads them."""
    return sum(aligned(4 * norm.channels) for stash in ("mean", "inv_std") if stash not in roles)


def statistics(norm: BatchNorm, call: CpuCall, offset: int) -> tuple[int, int]:
    """Addresses of mean and inv_std: the stash, or the workspace from byte `offset` on."""
    workspace = call.workspace + offset
    if "mean" in call:
        return call["mean"], call["inv_std"] or workspace
    return workspace, call["inv_std"] or workspace + aligned(4 * norm.channels)


def batch_norm_forward_workspace_bytes(op: BatchNorm, roles: Collection[str]) -> int:
    if op.global_stats:
        return query("batch_norm_global_workspace_bytes", channels(op))
    return query("batch_norm_forward_workspace_bytes", channels(op)) + statistics_bytes(op, roles)


def batch_norm_backward_workspace_bytes(op: BatchNorm, roles: Collection[str]) -> int:
    if op.global_stats:
        return query("batch_norm_global_workspace_bytes", channels(op))
    return query("batch_norm_backward_workspace_bytes", channels(op))


@kernel(BatchNorm, "forward", workspace=batch_norm_forward_workspace_bytes, narrow=forward_blobs)
def batch_norm_forward(op: BatchNorm, call: CpuCall) -> list[Launch]:
    shape, y, x, workspace = channels(op), call["y0"], call["x0"], call.workspace
    w0, w1, w2 = call["w0"], call["w1"], call["w2"]
    if op.global_stats:
        return [
            launch(
                "batch_norm_global_forward",
                shape,
                y=y,
                x=x,
                w0=w0,
                w1=w1,
                w2=w2,
                eps=op.eps,
                workspace=workspace,
                storage=call.storage,
            )
        ]
    mean, inv_std = statistics(op, call, query("batch_norm_forward_workspace_bytes", shape))
    return [
        launch(
            "batch_norm_forward",
            shape,
            y=y,
            x=x,
            mean=mean,
            inv_std=inv_std,
            w0=w0,
            w1=w1,
            w2=w2,
            fraction=op.fraction,
            eps=op.eps,
            workspace=workspace,
            storage=call.storage,
        )
    ]


@kernel(BatchNorm, "recompute", narrow=forward_blobs)
def batch_norm_recompute(op: BatchNorm, call: CpuCall) -> list[Launch]:
    mean, inv_std = call["mean"], call["inv_std"]
    return [
        launch(
            "batch_norm_recompute",
            channels(op),
            y=call["y0"],
            x=call["x0"],
            mean=mean,
            inv_std=inv_std,
            storage=call.storage,
        )
    ]


@kernel(BatchNorm, "backward", workspace=batch_norm_backward_workspace_bytes, narrow=backward_blobs, adds_narrow=True)
def batch_norm_backward(op: BatchNorm, call: CpuCall) -> list[Launch]:
    shape, dx, dy, accumulate = channels(op), call["dx0"], call["dy0"], call.accumulates("dx0")
    if op.global_stats:
        return [
            launch(
                "batch_norm_global_backward",
                shape,
                dx=dx,
                dy=dy,
                w1=call["w1"],
                w2=call["w2"],
                eps=op.eps,
                accumulate=accumulate,
                workspace=call.workspace,
                storage=call.storage,
            )
        ]
    return [
        launch(
            "batch_norm_backward",
            shape,
            dx=dx,
            x=call["x0"],
            dy=dy,
            mean=call["mean"],
            inv_std=call["inv_std"],
            accumulate=accumulate,
            workspace=call.workspace,
            storage=call.storage,
        )
    ]


# -- BatchNorm + Scale (+ ReLU) ----------------------------------------------------------------------------------------


def batch_norm_scale_forward_workspace_bytes(op: BatchNormScale, roles: Collection[str]) -> int:
    if op.norm.global_stats:
        return query("batch_norm_global_workspace_bytes", channels(op))
    return query("batch_norm_fused_workspace_bytes", channels(op)) + statistics_bytes(op.norm, roles)


def batch_norm_scale_backward_workspace_bytes(op: BatchNormScale, roles: Collection[str]) -> int:
    return query("batch_norm_fused_workspace_bytes", channels(op))


@kernel(BatchNormScale, "forward", workspace=batch_norm_scale_forward_workspace_bytes, narrow=forward_blobs)
def batch_norm_scale_forward(op: BatchNormScale, call: CpuCall) -> Launches:
    if not op.norm.global_stats:
        return fused_forward(op, call, recompute=False)
    return [
        launch(
            "batch_norm_fused_global_forward",
            shape=channels(op),
            y=call["y0"],
            x=call["x0"],
            w0=call["w0"],
            w1=call["w1"],
            w2=call["w2"],
            factor=call["w3"],
            bias=call["w4"],
            relu=False,
            eps=op.norm.eps,
            workspace=call.workspace,
            storage=call.storage,
        )
    ]


@kernel(BatchNormScale, "recompute", workspace=batch_norm_scale_forward_workspace_bytes, narrow=forward_blobs)
def batch_norm_scale_recompute(op: BatchNormScale, call: CpuCall) -> Launches:
    return fused_forward(op, call, recompute=True)


def fused_forward(op: BatchNormScale, call: CpuCall, *, recompute: bool) -> Launches:
    norm, shape = op.norm, channels(op)
    mean, inv_std = statistics(norm, call, query("batch_norm_fused_workspace_bytes", shape))
    return [
        launch(
            "batch_norm_fused_forward",
            shape=shape,
            y=call["y0"],
            x=call["x0"],
            mean=mean,
            inv_std=inv_std,
            factor=call["w3"],
            bias=call["w4"],
            relu=op.relu,
            residual=call["x1"] if op.residual else 0,
            bits=call["mask"],
            largest_zero=op.largest_zero,
            w0=call["w0"],
            w1=call["w1"],
            w2=call["w2"],
            fraction=norm.fraction,
            eps=norm.eps,
            recompute=recompute,
            workspace=call.workspace,
            storage=call.storage,
        )
    ]


@kernel(
    BatchNormScale,
    "backward",
    workspace=batch_norm_scale_backward_workspace_bytes,
    narrow=backward_blobs,
    adds_narrow=True,
)
def batch_norm_scale_backward(op: BatchNormScale, call: CpuCall) -> list[Launch]:
    return [
        launch(
            "batch_norm_fused_backward",
            shape=channels(op),
            dx=call["dx0"],
            dfactor=call["dw3"],
            dbias=call["dw4"],
            x=call["x0"],
            dy=call["dy0"],
            mean=call["mean"],
            inv_std=call["inv_std"],
            factor=call["w3"],
            bias=call["w4"],
            relu=op.relu,
            largest_zero=op.largest_zero,
            accumulate_dx=call.accumulates("dx0"),
            accumulate_dfactor=call.accumulates("dw3"),
            accumulate_dbias=call.accumulates("dw4"),
            workspace=call.workspace,
            storage=call.storage,
        )
    ]


# -- in two passes over slices of a batch ------------------------------------------------------------------------------


def rows_of_norm(op: BatchNorm | BatchNormScale) -> RowsOfBatch:
    return rows_of_batch(op, op.x.around(1)[0])


def two_passes_carry_bytes(op: BatchNorm | BatchNormScale, role: str) -> int:
    """Bytes of moments and sums, which are carried once; all results are made from them."""
    each, width, inner = op.x.around(1)
    whole = (rows_of_norm(op)["of"], width, inner)
    carry_bytes = {"mean": "moments_carry_bytes", "sums": "channel_sums_carry_bytes"}.get(role)
    return query(carry_bytes, whole, each) if carry_bytes else 0


@kernel(BatchNorm, "statistics", carry=two_passes_carry_bytes)
def batch_norm_statistics(op: BatchNorm, call: CpuCall) -> Launches:
    return [
        launch(
            "batch_norm_statistics",
            channels(op),
            x=call["x0"],
            mean=call["mean"],
            inv_std=call["inv_std"],
            w0=call["w0"],
            w1=call["w1"],
            w2=call["w2"],
            fraction=op.fraction,
            eps=op.eps,
            carry=call["mean" + CARRY],
            **rows_of_norm(op),
        )
    ]


@kernel(BatchNormScale, "statistics", carry=two_passes_carry_bytes)
def batch_norm_scale_statistics(op: BatchNormScale, call: CpuCall) -> Launches:
    return batch_norm_statistics(op.norm, call)


@kernel(BatchNorm, "gradient_sums", carry=two_passes_carry_bytes)
def batch_norm_gradient_sums(op: BatchNorm, call: CpuCall) -> list[Launch]:
    return [
        launch(
            "batch_norm_gradient_sums",
            channels(op),
            sums=call["sums"],
            x=call["x0"],
            dy=call["dy0"],
            mean=call["mean"],
            inv_std=call["inv_std"],
            carry=call["sums" + CARRY],
            **rows_of_norm(op),
        )
    ]


def input_gradient_workspace_bytes(op: BatchNorm | BatchNormScale, roles: Collection[str]) -> int:
    return query("batch_norm_input_gradient_workspace_bytes", channels(op))


@kernel(BatchNorm, "input_gradient", workspace=input_gradient_workspace_bytes)
def batch_norm_input_gradient(op: BatchNorm, call: CpuCall) -> list[Launch]:
    return [
        launch(
            "batch_norm_input_gradient",
            channels(op),
            dx=call["dx0"],
            x=call["x0"],
            dy=call["dy0"],
            mean=call["mean"],
            inv_std=call["inv_std"],
            sums=call["sums"],
            accumulate=call.accumulates("dx0"),
            workspace=call.workspace,
            **rows_of_norm(op),
        )
    ]


def gradient_sums_workspace_bytes(op: BatchNormScale, roles: Collection[str]) -> int:
    return aligned(4 * op.norm.channels)  # for the slopes


@kernel(BatchNormScale, "gradient_sums", workspace=gradient_sums_workspace_bytes, carry=two_passes_carry_bytes)
def batch_norm_scale_gradient_sums(op: BatchNormScale, call: CpuCall) -> list[Launch]:
    return [
        launch(
            "batch_norm_fused_gradient_sums",
            shape=channels(op),
            sums=call["sums"],
            dfactor=call["dw3"],
            dbias=call["dw4"],
            x=call["x0"],
            dy=call["dy0"],
            mean=call["mean"],
            inv_std=call["inv_std"],
            factor=call["w3"],
            bias=call["w4"],
            relu=op.relu,
            largest_zero=op.largest_zero,
            accumulate_dfactor=call.accumulates("dw3"),
            accumulate_dbias=call.accumulates("dw4"),
            carry=call["sums" + CARRY],
            workspace=call.workspace,
            **rows_of_norm(op),
        )
    ]


@kernel(BatchNormScale, "input_gradient", workspace=input_gradient_workspace_bytes)
def batch_norm_scale_input_gradient(op: BatchNormScale, call: CpuCall) -> list[Launch]:
    return [
        launch(
            "batch_norm_fused_input_gradient",
            shape=channels(op),
            dx=call["dx0"],
            x=call["x0"],
            dy=call["dy0"],
            mean=call["mean"],
            inv_std=call["inv_std"],
            sums=call["sums"],
            factor=call["w3"],
            bias=call["w4"],
            relu=op.relu,
            largest_zero=op.largest_zero,
            accumulate=call.accumulates("dx0"),
            workspace=call.workspace,
            **rows_of_norm(op),
        )
    ]


@kernel(MovingAverage, "average")
def moving_average(op: MovingAverage, call: CpuCall) -> list[Launch]:
    roles = {role: call[role] for role in ("w0", "w1", "w2", "x0", "x1", "x2")}
    moves = {n: launch("move_averages", op.channels, op.ops * n, fraction=op.kept, **roles) for n in {1, op.batches}}
    return [lambda: moves[call.context.get("averaged", op.batches)]()]
