"""Upsample: forward is a strided copy with stride 0 along copies; backward sums along columns, then along rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from layermem.backends.cuda.base import FLOAT, CudaCall, kernel
from layermem.backends.cuda.permute import strided_copy
from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, divider, launch, vector_width
from layermem.ops import Upsample


@kernel(Upsample, "forward")
def upsample_forward(op: Upsample, call: CudaCall) -> Iterator[Launch]:
    n, c, h, w = op.x.shape
    axes = [(n * h, w * c), (op.scale, 0), (w, c), (op.scale, 0), (c, 1)]
    yield strided_copy(axes, call["y0"], call["x0"], op.y.count, False)


def backward_workspace_bytes(op: Upsample, roles: Collection[str]) -> int:
    return FLOAT * op.y.count // op.scale


@kernel(Upsample, "backward", workspace=backward_workspace_bytes)
def upsample_backward(op: Upsample, call: CudaCall) -> Iterator[Launch]:
    _, c, _, w = op.x.shape
    columns = call.workspace
    yield sum_runs(columns, call["dy0"], c, op.y.count // op.scale, op.scale, False)
    yield sum_runs(call["dx0"], columns, w * c, op.x.count, op.scale, call.accumulates("dx0"))


def sum_runs(y: int, x: int, run: int, count: int, terms: int, accumulate: bool) -> Launch:
    """y[o, i] = sum over t of x[o, t, i] for runs of `run` elements; y has `count` elements."""
    v = vector_width(run)
    return launch(
        "shape",
        f"sum_runs_v{v}",
        "SumRunsArgs",
        ceil_div(count, THREADS * v),
        y=y,
        x=x,
        by_run=divider(run),
        count=count,
        terms=terms,
        accumulate=accumulate,
    )
