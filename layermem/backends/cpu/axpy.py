"""Axpy: the launches of a Scale, and a sum."""

from __future__ import annotations

from collections.abc import Collection

from layermem.backends.cpu import scale
from layermem.backends.cpu.base import CpuCall, Launch, Launches, kernel
from layermem.backends.cpu.copy import copy_unless_shared
from layermem.backends.cpu.support.launch import launch
from layermem.ops import Axpy
from layermem.ops.axpy import AS_SCALE


def forward_workspace_bytes(op: Axpy, roles: Collection[str]) -> int:
    return scale.scale_forward_workspace_bytes(op.scale, roles)


@kernel(Axpy, "forward", workspace=forward_workspace_bytes)
def axpy_forward(op: Axpy, call: CpuCall) -> list[Launch]:
    y = call["y0"]
    return [
        *(scale.scale_forward(op.scale, call.renamed(AS_SCALE)) or ()),
        launch("eltwise_sum", op.x.count, y=y, xs=[y, call["x2"]], coefficients=[1.0, 1.0]),
    ]


def backward_workspace_bytes(op: Axpy, roles: Collection[str]) -> int:
    return scale.scale_backward_workspace_bytes(op.scale, roles)


@kernel(Axpy, "backward", workspace=backward_workspace_bytes)
def axpy_backward(op: Axpy, call: CpuCall) -> Launches:
    return scale.scale_backward(op.scale, call.renamed(AS_SCALE))


@kernel(Axpy, "residual_backward")
def axpy_residual_backward(op: Axpy, call: CpuCall) -> list[Launch]:
    return copy_unless_shared(call, "dx2", "dy0")
