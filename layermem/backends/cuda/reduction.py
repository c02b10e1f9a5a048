"""Reduction and ArgMax: axes of Caffe, walked in memory."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from layermem.backends.cuda.channel_sums import FLOAT
from layermem.backends.cuda.launch import THREADS, Addresses, Launch, ceil_div, kernel, launch
from layermem.backends.cuda.strided_index import memory_order, select_axes, strided_index, strides

SUMS = {"SUM": "reduce_sum", "MEAN": "reduce_sum", "ASUM": "reduce_sum_absolute", "SUMSQ": "reduce_sum_square"}
WARPS = 8  # of a block


@kernel("Reduction.forward")
def reduction_forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    x, y = layer.bottoms[0], layer.tops[0]
    inner = [axis for axis in memory_order(len(x.shape)) if axis >= layer.along]
    yield launch(
        "reduction", SUMS[layer.operation], "ReduceSumArgs", y.count, y=b["y0"], x=b["x0"], b=0,
        outer=strided_index(select_axes(x, range(layer.along))), inner=strided_index(select_axes(x, inner)),
        terms=x.count // y.count, accumulate=False, factor=layer.factor,
    )  # fmt: skip


@kernel("Reduction.backward")
def reduction_backward(layer: Any, b: Addresses) -> Iterator[Launch]:
    x, step = layer.bottoms[0], strides(layer.tops[0])
    axes = [(x.shape[axis], step[axis] if axis < layer.along else 0) for axis in memory_order(len(x.shape))]
    yield launch(
        "reduction", "reduce_sum_backward", "ReduceSumBackwardArgs", ceil_div(x.count, THREADS), dx=b["dx0"],
        dy=b["dy0"], x=b["x0"], outer=strided_index(axes), count=x.count, accumulate=b.accumulates("dx0"),
        squares=layer.operation == "SUMSQ", factor=layer.factor,
    )  # fmt: skip


@kernel("ArgMax.forward")
def argmax_forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    x, y, axis = layer.bottoms[0], layer.tops[0], layer.along
    rank, out_step = len(x.shape), strides(y)
    if axis is None:
        lines, line = [0], list(range(1, rank))
        out = [(x.shape[0], prod(y.shape[1:]))]
        step, places = out_step[2], b["y0"]
        values = b["y0"] + FLOAT * out_step[1] if layer.with_values else 0
    else:
        lines, line = [i for i in range(rank) if i != axis], [axis]
        out = [(x.shape[i], out_step[i]) for i in lines]
        step, values = out_step[axis], b["y0"] if layer.with_values else 0
        places = 0 if layer.with_values else b["y0"]
    size = prod(x.shape[i] for i in line)
    yield launch(
        "reduction", "argmax", "ArgmaxArgs", ceil_div(x.count // size, WARPS), places=places, values=values, x=b["x0"],
        lines=strided_index(select_axes(x, lines)), line=strided_index(select_axes(x, line)), out=strided_index(out),
        count=x.count // size, size=size, top=layer.top_k, out_step=step,
    )  # fmt: skip
