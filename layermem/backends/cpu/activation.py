"""Pointwise functions, PReLU, and the backward of a ReLU that ran in another op's epilogue."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from layermem.backends.cpu.base import CpuCall, Launch, kernel
from layermem.backends.cpu.support.launch import Channels, launch, query
from layermem.backends.cpu.support.slices import channel_sums, is_slice, rows_of_batch
from layermem.ops import Kind, Pointwise, PReLU, ReluMask


@kernel(Pointwise, "forward", narrow="x0|y0")
def pointwise_forward(op: Pointwise, call: CpuCall) -> list[Launch]:
    count, y, x, mask = call.count("x0"), call["y0"], call["x0"], call["mask"]
    if op.kind is Kind.RELU:
        return [launch("relu_forward", count, y=y, x=x, slope=op.alpha, bits=mask, storage=call.storage)]
    if op.kind is Kind.CLIP and mask:
        return [
            launch("clip_forward", count, y=y, x=x, mask=mask, lowest=op.alpha, highest=op.beta, storage=call.storage)
        ]
    return [
        launch(
            "pointwise",
            op.kind.value,
            count,
            out=y,
            a=x,
            alpha=op.alpha,
            beta=op.beta,
            gamma=op.gamma,
            storage=call.storage,
        )
    ]


@kernel(Pointwise, "backward", narrow="x0|y0|dx0|dy0", adds_narrow=True)
def pointwise_backward(op: Pointwise, call: CpuCall) -> list[Launch]:
    count, dx, dy = call.count("dx0"), call["dx0"], call["dy0"]
    common: dict[str, Any] = {"accumulate": call.accumulates("dx0"), "storage": call.storage}
    if "mask" in call:
        slope = op.alpha if op.kind is Kind.RELU else 0.0
        return [launch("relu_backward", count, dx=dx, dy=dy, mask=call["mask"], slope=slope, **common)]
    if op.has_constant_slope:
        return [launch("pointwise", "scale", count, out=dx, a=dy, alpha=op.alpha * op.beta, **common)]
    common |= {"alpha": op.alpha, "beta": op.beta, "gamma": op.gamma}
    derivative, source = f"{op.kind.value}_backward", call.require("y0", "x0")
    return [launch("pointwise", derivative, count, out=dx, a=dy, b=source, **common)]


@kernel(ReluMask, "relu_backward", narrow="y0|dy0")
def relu_backward(op: ReluMask, call: CpuCall) -> list[Launch]:
    count, dy = call.count("dy0"), call["dy0"]
    if "mask" in call:
        return [launch("relu_backward", count, dx=dy, dy=dy, mask=call["mask"], storage=call.storage)]
    return [launch("pointwise", "relu_backward", count, out=dy, a=dy, b=call.require("y0"), storage=call.storage)]


def has_one_slope(op: PReLU) -> bool:
    return op.shared or op.x.shape[1] == 1


def prelu_shape(op: PReLU) -> Channels:
    """The channels of the slopes; one channel if there is a single slope."""
    return (1, 1, op.x.count) if has_one_slope(op) else op.x.around(1)


def prelu_carry_bytes(op: PReLU, role: str) -> int | None:
    """None for a single slope: it has one sum over the whole batch, in which slices may end anywhere."""
    if has_one_slope(op):
        return None
    outer, channels, inner = op.x.around(1)
    return query("channel_sums_carry_bytes", (rows_of_batch(op, outer)["of"], channels, inner), outer)


def prelu_backward_workspace_bytes(op: PReLU, roles: Collection[str]) -> int:
    return query("prelu_backward_workspace_bytes", prelu_shape(op))


@kernel(PReLU, "forward")
def prelu_forward(op: PReLU, call: CpuCall) -> list[Launch]:
    return [launch("prelu_forward", prelu_shape(op), y=call["y0"], x=call["x0"], slope=call["w0"])]


@kernel(PReLU, "backward", workspace=prelu_backward_workspace_bytes, carry=prelu_carry_bytes)
def prelu_backward(op: PReLU, call: CpuCall) -> list[Launch]:
    shape, dslope, sums = prelu_shape(op), call["dw0"], list[Launch]()
    if is_slice(op) and not has_one_slope(op):
        outer = op.x.around(1)[0]
        sums = channel_sums(op, call, "dw0", "prelu", outer, shape, dslope, call.accumulates("dw0"))
        dslope = 0
    return [
        *sums,
        launch(
            "prelu_backward",
            shape,
            dx=call["dx0"],
            dslope=dslope,
            x=call["x0"],
            dy=call["dy0"],
            slope=call["w0"],
            accumulate_dx=call.accumulates("dx0"),
            accumulate_dslope=call.accumulates("dw0"),
            workspace=call.workspace,
        ),
    ]
