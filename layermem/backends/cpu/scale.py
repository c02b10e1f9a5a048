"""Scale and Bias."""

from __future__ import annotations

from collections.abc import Collection

from layermem.backends.cpu.base import CpuCall, Launch, kernel
from layermem.backends.cpu.copy import copy_unless_shared
from layermem.backends.cpu.support.broadcast import Broadcast
from layermem.backends.cpu.support.launch import launch, query
from layermem.backends.cpu.support.slices import channel_sums, is_slice, rows_of_batch
from layermem.ops import Bias, Scale


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
