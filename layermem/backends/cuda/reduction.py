"""Reduction and ArgMax along axes of Caffe, in the order of memory."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from layermem.backends.cuda.base import FLOAT, CudaCall, kernel
from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, launch
from layermem.backends.cuda.support.strided_index import memory_order, select_axes, strided_index, strides
from layermem.ops import ArgMax, Reduction

SUMS = {"SUM": "reduce_sum", "MEAN": "reduce_sum", "ASUM": "reduce_sum_absolute", "SUMSQ": "reduce_sum_square"}
WARPS = 8  # per block


@kernel(Reduction, "forward")
def reduction_forward(op: Reduction, call: CudaCall) -> Iterator[Launch]:
    inner = [axis for axis in memory_order(len(op.x.shape)) if axis >= op.along]
    yield launch(
        "reduction",
        SUMS[op.operation],
        "ReduceSumArgs",
        op.y.count,
        y=call["y0"],
        x=call["x0"],
        b=0,
        outer=strided_index(select_axes(op.x, memory_order(op.along))),
        inner=strided_index(select_axes(op.x, inner)),
        terms=op.x.count // op.y.count,
        accumulate=False,
        factor=op.factor,
    )


@kernel(Reduction, "backward")
def reduction_backward(op: Reduction, call: CudaCall) -> Iterator[Launch]:
    x, step = op.x, strides(op.y)
    axes = [(x.shape[axis], step[axis] if axis < op.along else 0) for axis in memory_order(len(x.shape))]
    yield launch(
        "reduction",
        "reduce_sum_backward",
        "ReduceSumBackwardArgs",
        ceil_div(x.count, THREADS),
        dx=call["dx0"],
        dy=call["dy0"],
        x=call["x0"],
        outer=strided_index(axes),
        count=x.count,
        accumulate=call.accumulates("dx0"),
        squares=op.operation == "SUMSQ",
        factor=op.factor,
    )


@kernel(ArgMax, "forward")
def argmax_forward(op: ArgMax, call: CudaCall) -> Iterator[Launch]:
    x, y, axis = op.x, op.y, op.along
    out_step = strides(y)
    if axis is None:  # per item: y [N, 1 or 2, top_k], indices before values
        lines, line = [0], list(range(1, len(x.shape)))
        out = [(x.shape[0], prod(y.shape[1:]))]
        step, places = out_step[2], call["y0"]
        values = call["y0"] + FLOAT * out_step[1] if op.with_values else 0
    else:  # along an axis: y has indices or values in its place
        lines, line = [i for i in range(len(x.shape)) if i != axis], [axis]
        out = [(x.shape[i], out_step[i]) for i in lines]
        step, values = out_step[axis], call["y0"] if op.with_values else 0
        places = 0 if op.with_values else call["y0"]
    size = prod(x.shape[i] for i in line)
    yield launch(
        "reduction",
        "argmax",
        "ArgmaxArgs",
        ceil_div(x.count // size, WARPS),
        places=places,
        values=values,
        x=call["x0"],
        lines=strided_index(select_axes(x, lines)),
        line=strided_index(select_axes(x, line)),
        out=strided_index(out),
        count=x.count // size,
        size=size,
        top=op.top_k,
        out_step=step,
    )
