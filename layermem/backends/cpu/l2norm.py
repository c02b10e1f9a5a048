"""L2Norm: vectors of length one, times a learned scale."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypedDict

from layermem.backends.cpu.base import CpuCall, Launch, kernel
from layermem.backends.cpu.support.launch import launch, query
from layermem.backends.cpu.support.slices import is_slice, rows_of_batch
from layermem.ops import CARRY, L2Norm


class L2NormShape(TypedDict):
    pixels: int
    channels: int
    group: int
    shared: bool


def shape_of(op: L2Norm) -> L2NormShape:
    return {"pixels": op.pixels, "channels": op.channels, "group": op.group, "shared": op.shared}


def l2norm_workspace_bytes(op: L2Norm, roles: Collection[str]) -> int:
    return query("l2norm_workspace_bytes", **shape_of(op), is_slice=is_slice(op))


def l2norm_carry_bytes(op: L2Norm, role: str) -> int:
    return query("l2norm_carry_bytes", rows_of_batch(op, op.pixels)["of"], op.channels)


@kernel(L2Norm, "forward", workspace=l2norm_workspace_bytes)
def l2norm_forward(op: L2Norm, call: CpuCall) -> list[Launch]:
    return [
        launch(
            "l2norm_forward",
            **shape_of(op),
            eps=op.eps,
            y=call["y0"],
            x=call["x0"],
            scale=call["w0"],
            workspace=call.workspace,
        )
    ]


@kernel(L2Norm, "backward", workspace=l2norm_workspace_bytes, carry=l2norm_carry_bytes)
def l2norm_backward(op: L2Norm, call: CpuCall) -> list[Launch]:
    return [
        launch(
            "l2norm_backward",
            **shape_of(op),
            eps=op.eps,
            dx=call["dx0"],
            dscale=call["dw0"],
            x=call["x0"],
            dy=call["dy0"],
            scale=call["w0"],
            accumulate_dx=call.accumulates("dx0"),
            accumulate_dscale=call.accumulates("dw0"),
            workspace=call.workspace,
            carry=call["dw0" + CARRY],
            **rows_of_batch(op, op.pixels),
        )
    ]
