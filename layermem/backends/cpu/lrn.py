"""LRN across and within channels."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypedDict

from layermem.backends.cpu.base import CpuCall, Launch, kernel
from layermem.backends.cpu.support.launch import launch, query
from layermem.ops import LRN


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
