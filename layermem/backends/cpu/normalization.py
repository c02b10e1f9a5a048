"""LRN, BatchNorm, Scale and Bias, and the fusion of a BatchNorm with the Scale and ReLU that follow it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypedDict

from layermem.backends.cpu.base import CpuCall, Launch, Launches, kernel
from layermem.backends.cpu.broadcast import Broadcast
from layermem.backends.cpu.copy import copy_unless_shared
from layermem.backends.cpu.launch import Channels, launch, query
from layermem.backends.cpu.slices import RowsOfBatch, channel_sums, is_slice, rows_of_batch
from layermem.ops import CARRY, LRN, BatchNorm, BatchNormScale, Bias, MovingAverage, Scale
from layermem.utils.units import aligned

# -- LRN ---------------------------------------------------------------------------------------------------------------


class LrnShape(TypedDict):
    n: int
    h: int
    w: int
    c: int
    size: int
    across: bool


def lrn_shape(op: LRN) -> LrnShape:
    n, c, h, w = op.x.shape
    return {"n": n, "h": h, "w": w, "c": c, "size": op.size, "across": op.across}


def lrn_forward_workspace_bytes(op: LRN, roles: Collection[str]) -> int:
    return query("lrn_workspace_bytes", **lrn_shape(op), backward=False)


def lrn_backward_workspace_bytes(op: LRN, roles: Collection[str]) -> int:
    return query("lrn_workspace_bytes", **lrn_shape(op), backward=True)


@kernel(LRN, "forward", workspace=lrn_forward_workspace_bytes)
def lrn_forward(op: LRN, call: CpuCall) -> list[Launch]:
    return [
        launch(
            "lrn_forward",
            **lrn_shape(op),
            alpha=op.alpha,
            k=op.k,
            beta=op.beta,
            out=call["y0"],
            x=call["x0"],
            workspace=call.workspace,
        )
    ]


@kernel(LRN, "backward", workspace=lrn_backward_workspace_bytes)
def lrn_backward(op: LRN, call: CpuCall) -> list[Launch]:
    return [
        launch(
            "lrn_backward",
            **lrn_shape(op),
            alpha=op.alpha,
            k=op.k,
            beta=op.beta,
            out=call["dx0"],
            x=call["x0"],
            dy=call["dy0"],
            accumulate=call.accumulates("dx0"),
            workspace=call.workspace,
        )
    ]


# -- BatchNorm ---------------------------------------------------------------------------------------------------------


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


# -- Scale and Bias ----------------------------------------------------------------------------------------------------


def offset_unless_absent(address: int, offset: int) -> int:
    return address + offset if address else 0


def scale_forward_workspace_bytes(op: Scale | Bias, roles: Collection[str]) -> int:
    broadcast = Broadcast(op)
    return 2 * broadcast.nbytes if broadcast.copied else 0


def scale_backward_workspace_bytes(op: Scale | Bias, roles: Collection[str]) -> int:
    broadcast = Broadcast(op)
    return query("scale_backward_workspace_bytes", broadcast.shape) + (3 * broadcast.nbytes if broadcast.copied else 0)


@kernel(Scale, "forward", workspace=scale_forward_workspace_bytes)
def scale_forward(op: Scale, call: CpuCall) -> list[Launch]:
    broadcast = Broadcast(op)
    factor, before_factor = broadcast.operand(call, op.operand, call.workspace)
    bias, before_bias = broadcast.operand(call, op.bias, call.workspace + broadcast.nbytes)
    blocks = [
        launch(
            "scale_forward",
            broadcast.shape,
            y=call["y0"] + i,
            x=call["x0"] + i,
            factor=factor + w,
            bias=offset_unless_absent(bias, w),
        )
        for i, w, _ in broadcast.blocks()
    ]
    return [*before_factor, *before_bias, *blocks]


@kernel(Bias, "forward", workspace=scale_forward_workspace_bytes)
def bias_forward(op: Bias, call: CpuCall) -> list[Launch]:
    broadcast = Broadcast(op)
    bias, before = broadcast.operand(call, op.operand, call.workspace)
    blocks = [
        launch("bias_forward", broadcast.shape, y=call["y0"] + i, x=call["x0"] + i, bias=bias + w)
        for i, w, _ in broadcast.blocks()
    ]
    return [*before, *blocks]


def scale_carry_bytes(op: Scale | Bias, role: str) -> int | None:
    """Bytes to carry, if the operand is a parameter over channels, in one block; else None."""
    broadcast = Broadcast(op)
    if 0 not in op.summed or broadcast.leading or not op.operand.startswith("w"):
        return None
    whole = rows_of_batch(op, broadcast.outer)["of"]
    return query("channel_sums_carry_bytes", (whole, broadcast.width, broadcast.inner), broadcast.outer)


def sums_of_slice(op: Scale | Bias, call: CpuCall, role: str | None, kind: str, copy: int) -> list[Launch]:
    if role is None:
        return []
    broadcast = Broadcast(op)
    out, accumulate, after = broadcast.gradient(call, role, copy)
    return [*channel_sums(op, call, role, kind, broadcast.outer, broadcast.shape, out, accumulate), *after]


@kernel(Scale, "backward", workspace=scale_backward_workspace_bytes, carry=scale_carry_bytes)
def scale_backward(op: Scale, call: CpuCall) -> list[Launch]:
    broadcast, dbias_role = Broadcast(op), f"d{op.bias}" if op.bias else None
    copies = call.workspace + query("scale_backward_workspace_bytes", broadcast.shape)
    if is_slice(op) and op.operand.startswith("w"):
        factor, before = broadcast.operand(call, op.operand, copies)
        sums = sums_of_slice(op, call, f"d{op.operand}", "product", copies + broadcast.nbytes)
        sums += sums_of_slice(op, call, dbias_role, "plain", copies + 2 * broadcast.nbytes)
        if "dx0" in call:
            dx = launch(
                "scale_backward",
                broadcast.shape,
                dx=call["dx0"],
                dy=call["dy0"],
                factor=factor,
                accumulate_dx=call.accumulates("dx0"),
            )
            sums += [*before, dx]
        return sums
    factor, before = broadcast.operand(call, op.operand, copies)
    dfactor, accumulate_dfactor, after_dfactor = broadcast.gradient(call, f"d{op.operand}", copies + broadcast.nbytes)
    dbias, accumulate_dbias, after_dbias = broadcast.gradient(call, dbias_role, copies + 2 * broadcast.nbytes)
    blocks = [
        launch(
            "scale_backward",
            broadcast.shape,
            dx=offset_unless_absent(call["dx0"], i),
            dfactor=offset_unless_absent(dfactor, w),
            dbias=offset_unless_absent(dbias, w),
            x=offset_unless_absent(call["x0"], i),
            dy=call["dy0"] + i,
            factor=offset_unless_absent(factor, w),
            accumulate_dx=call.accumulates("dx0"),
            accumulate_dfactor=accumulate_dfactor or repeated,
            accumulate_dbias=accumulate_dbias or repeated,
            workspace=call.workspace,
        )
        for i, w, repeated in broadcast.blocks()
    ]
    return [*before, *blocks, *after_dfactor, *after_dbias]


@kernel(Bias, "backward", workspace=scale_backward_workspace_bytes, carry=scale_carry_bytes)
def bias_backward(op: Bias, call: CpuCall) -> list[Launch]:
    broadcast = Broadcast(op)
    copies = call.workspace + query("scale_backward_workspace_bytes", broadcast.shape)
    launches: list[Launch] = []
    if is_slice(op) and op.operand.startswith("w"):
        dbias, after = 0, sums_of_slice(op, call, f"d{op.operand}", "plain", copies)
    else:
        dbias, accumulate, after = broadcast.gradient(call, f"d{op.operand}", copies)
    if dbias:
        launches += [
            launch(
                "scale_backward",
                broadcast.shape,
                dbias=dbias + w,
                dy=call["dy0"] + i,
                accumulate_dbias=accumulate or repeated,
                workspace=call.workspace,
            )
            for i, w, repeated in broadcast.blocks()
        ]
    return [*launches, *after, *(copy_unless_shared(call, "dx0", "dy0") if "dx0" in call else [])]


@kernel(MovingAverage, "average")
def moving_average(op: MovingAverage, call: CpuCall) -> list[Launch]:
    roles = {role: call[role] for role in ("w0", "w1", "w2", "x0", "x1", "x2")}
    moves = {n: launch("move_averages", op.channels, op.ops * n, fraction=op.kept, **roles) for n in {1, op.batches}}
    return [lambda: moves[call.context.get("averaged", op.batches)]()]
