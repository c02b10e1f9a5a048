"""RoiPool and PsRoiPool: the maxima, or the means, of a grid of windows over each region of interest."""

from __future__ import annotations

from typing import TypedDict

from layermem.backends.cpu.base import CpuCall, Launch, kernel, naming_layer
from layermem.backends.cpu.support.launch import launch
from layermem.ops import PsRoiPool, RoiPool


class RoiPoolShape(TypedDict):
    n: int
    c: int
    size: tuple[int, int]
    rois: int
    out: tuple[int, int]
    spatial_scale: float


def shape_of(op: RoiPool | PsRoiPool) -> RoiPoolShape:
    n, c, h, w = op.x.shape
    r, _, ho, wo = op.y.shape
    return {"n": n, "c": c, "size": (h, w), "rois": r, "out": (ho, wo), "spatial_scale": op.spatial_scale}


@kernel(RoiPool, "forward")
def roi_pool_forward(op: RoiPool, call: CpuCall) -> list[Launch]:
    bound = launch(
        "roi_pool_forward", **shape_of(op), y=call["y0"], x=call["x0"], regions=call["x1"], argmax=call["argmax"]
    )
    return [naming_layer(call, bound)]


@kernel(RoiPool, "backward")
def roi_pool_backward(op: RoiPool, call: CpuCall) -> list[Launch]:
    return [
        launch(
            "roi_pool_backward",
            **shape_of(op),
            dx=call["dx0"],
            dy=call["dy0"],
            regions=call["x1"],
            argmax=call["argmax"],
            accumulate=call.accumulates("dx0"),
        )
    ]


@kernel(PsRoiPool, "forward")
def ps_roi_pool_forward(op: PsRoiPool, call: CpuCall) -> list[Launch]:
    bound = launch("ps_roi_pool_forward", **shape_of(op), y=call["y0"], x=call["x0"], regions=call["x1"])
    return [naming_layer(call, bound)]


@kernel(PsRoiPool, "backward")
def ps_roi_pool_backward(op: PsRoiPool, call: CpuCall) -> list[Launch]:
    return [
        launch(
            "ps_roi_pool_backward",
            **shape_of(op),
            dx=call["dx0"],
            dy=call["dy0"],
            regions=call["x1"],
            accumulate=call.accumulates("dx0"),
        )
    ]
