"""Pooling: one thread per window and V channels forward, one per pixel and V channels backward."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from layermem.backends.cuda.base import CudaCall, kernel
from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, divider, launch, vector_width
from layermem.backends.cuda.support.step_scalars import WORD
from layermem.backends.struct_layout import StructValues
from layermem.ops import Pool, StochasticPool, Tensor, first_index

NARROW_TAPS = 256  # limit for an index of one byte


def mask_workspace_bytes(op: Pool, roles: Collection[str]) -> int:
    """Bytes of the index of the maximum, from which the mask is computed, if no backward reads the index."""
    return op.argmax.nbytes if "y1" in roles and "argmax" not in roles else 0


@kernel(Pool, "forward", workspace=mask_workspace_bytes, narrow="x0|y0")
def pool_forward(op: Pool, call: CudaCall) -> Iterator[Launch]:
    argmax = call["argmax"] or (call.workspace if "y1" in call else 0)
    yield pool(op, "forward", op.y, call["y0"], call["x0"], argmax, suffix=call.suffix)
    if "y1" in call:
        yield launch(
            "pooling",
            "pool_max_mask",
            "PoolArgs",
            ceil_div(op.y.count, THREADS),
            base=arguments(op, op.y, 1, call["y1"], 0, argmax),
        )


@kernel(Pool, "backward", narrow="dx0|dy0")
def pool_backward(op: Pool, call: CudaCall) -> Iterator[Launch]:
    yield pool(
        op, "backward", op.x, call["dx0"], call["dy0"], call["argmax"], call.accumulates("dx0"), suffix=call.suffix
    )


def arguments(op: Pool, written: Tensor, v: int, y: int, x: int, argmax: int, accumulate: bool = False) -> StructValues:
    """The fields of PoolArgs; y has the shape `written`: windows forward, pixels backward."""
    rows, columns = op.windows
    _, channels, out_h, out_w = op.y.shape
    return {
        "y": y, "x": x, "argmax": argmax, "height": rows.size, "width": columns.size,
        "channels": channels, "rows": out_h, "columns": out_w, "kernel_h": rows.kernel, "kernel_w": columns.kernel,
        "stride_h": rows.stride, "stride_w": columns.stride, "pad_h": rows.pad, "pad_w": columns.pad,
        "by_runs": divider(channels // v), "by_columns": divider(written.shape[3]),
        "by_rows": divider(written.shape[2]), "by_stride_h": divider(rows.stride),
        "by_stride_w": divider(columns.stride), "count": written.count // v,
        "wide": op.taps > NARROW_TAPS, "accumulate": accumulate,
    }  # fmt: skip


def pool(
    op: Pool, step: str, written: Tensor, y: int, x: int, argmax: int, accumulate: bool = False, *, suffix: str
) -> Launch:
    v = vector_width(op.y.shape[1])
    return launch(
        "pooling",
        f"pool_{'max' if op.method == 'MAX' else 'average'}_{step}_v{v}{suffix}",
        "PoolArgs",
        ceil_div(written.count // v, THREADS),
        base=arguments(op, written, v, y, x, argmax, accumulate),
    )


@kernel(StochasticPool, "forward")
def stochastic_pool_forward(op: StochasticPool, call: CudaCall) -> Iterator[Launch]:
    pooling = arguments(op, op.y, 1, call["y0"], call["x0"], call["argmax"])
    blocks = ceil_div(op.y.count, THREADS)
    if op.average:
        yield launch("pooling", "pool_stochastic_average", "PoolArgs", blocks, base=pooling)
        return
    yield launch(
        "pooling",
        "pool_stochastic_forward",
        "StochasticArgs",
        blocks,
        of=pooling,
        first=first_index(op.batch_slice, op.y.count),
        stream=op.stream & WORD,
        step=call.step_scalars,
    )
