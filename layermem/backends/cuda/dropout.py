"""Dropout: the same random words forward, backward and in a recomputation; kernels read the step's number."""

from __future__ import annotations

from collections.abc import Iterator

from layermem.backends.cuda.base import CudaCall, kernel
from layermem.backends.cuda.copy import copy
from layermem.backends.cuda.support.launch import Launch, ceil_div, launch
from layermem.backends.cuda.support.step_scalars import WORD
from layermem.ops import Dropout, first_index

PER_BLOCK = 1024  # elements


@kernel(Dropout, "forward", narrow="x0|y0")
def dropout_forward(op: Dropout, call: CudaCall) -> Iterator[Launch]:
    yield from dropout(op, call, call["y0"], call["x0"], False)


@kernel(Dropout, "backward", narrow="dx0|dy0")
def dropout_backward(op: Dropout, call: CudaCall) -> Iterator[Launch]:
    yield from dropout(op, call, call["dx0"], call["dy0"], call.accumulates("dx0"))


def dropout(op: Dropout, call: CudaCall, y: int, x: int, accumulate: bool) -> Iterator[Launch]:
    if op.identity:
        yield from copy(y, x, op.x.count, accumulate, call.storage)
        return
    yield launch(
        "dropout",
        f"dropout{call.suffix}",
        "DropoutArgs",
        ceil_div(op.x.count, PER_BLOCK),
        y=y,
        x=x,
        count=op.x.count,
        accumulate=accumulate,
        first=first_index(op.batch_slice, op.x.count),
        threshold=op.threshold,
        scale=op.scale,
        stream=op.stream & WORD,
        step=call.step_scalars,
    )
