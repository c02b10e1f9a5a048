"""RoiPool and PsRoiPool: one thread per output forward, one per element of x backward."""

from __future__ import annotations

from collections.abc import Iterator

from layermem.backends.cuda.base import CudaCall, kernel
from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, divider, launch
from layermem.ops import PsRoiPool, RoiPool, Tensor


@kernel(RoiPool, "forward")
def roi_pool_forward(op: RoiPool, call: CudaCall) -> Iterator[Launch]:
    yield roi_pool(op, "forward", op.y, call["y0"], call["x0"], call, False)


@kernel(RoiPool, "backward")
def roi_pool_backward(op: RoiPool, call: CudaCall) -> Iterator[Launch]:
    yield roi_pool(op, "backward", op.x, call["dx0"], call["dy0"], call, call.accumulates("dx0"))


@kernel(PsRoiPool, "forward")
def ps_roi_pool_forward(op: PsRoiPool, call: CudaCall) -> Iterator[Launch]:
    yield roi_pool(op, "forward", op.y, call["y0"], call["x0"], call, False)


@kernel(PsRoiPool, "backward")
def ps_roi_pool_backward(op: PsRoiPool, call: CudaCall) -> Iterator[Launch]:
    yield roi_pool(op, "backward", op.x, call["dx0"], call["dy0"], call, call.accumulates("dx0"))


def roi_pool(
    op: RoiPool | PsRoiPool, step: str, written: Tensor, y: int, x: int, call: CudaCall, accumulate: bool
) -> Launch:
    """y has the shape `written`: regions forward, images backward."""
    items, channels, height, width = op.x.shape
    regions, _, pooled_h, pooled_w = op.y.shape
    return launch(
        "roi_pooling",
        f"{'ps_' * isinstance(op, PsRoiPool)}roi_pool_{step}",
        "RoiArgs",
        ceil_div(written.count, THREADS),
        y=y,
        x=x,
        regions=call["x1"],
        argmax=call["argmax"],
        error_flag=call.error_flag,
        by_channels=divider(written.shape[1]),
        by_columns=divider(written.shape[3]),
        by_rows=divider(written.shape[2]),
        items=items,
        channels=channels,
        height=height,
        width=width,
        regions_all=regions,
        pooled_h=pooled_h,
        pooled_w=pooled_w,
        count=written.count,
        accumulate=accumulate,
        spatial_scale=op.spatial_scale,
    )
