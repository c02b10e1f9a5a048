"""Constants."""

from __future__ import annotations

from collections.abc import Iterator

from layermem.backends.cuda.base import FLOAT, CudaCall, kernel
from layermem.backends.cuda.support.launch import Launch, ceil_div, launch
from layermem.ops import Fill

PER_BLOCK, VECTOR = 1024, 4  # elements of a block, and of an access


@kernel(Fill, "fill")
def fill(op: Fill, call: CudaCall) -> Iterator[Launch]:
    count, accumulate = call.count("y0"), call.accumulates("y0")
    blocks = ceil_div(count + call["y0"] // FLOAT % VECTOR, PER_BLOCK)
    if op.scaled:
        yield launch(
            "fill",
            "fill_scaled",
            "FillScaledArgs",
            blocks,
            y=call["y0"],
            step=call.step_scalars,
            count=count,
            value=op.value,
            accumulate=accumulate,
        )
        return
    yield launch("fill", "fill", "FillArgs", blocks, y=call["y0"], count=count, value=op.value, accumulate=accumulate)
