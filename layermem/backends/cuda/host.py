"""Fill.  Feed and CopyOut, the other ops between host and device, are bound by driver/host_io.py."""

from __future__ import annotations

from collections.abc import Iterator

from layermem.backends.cuda.base import CudaCall, kernel
from layermem.backends.cuda.launch import Launch, ceil_div, launch
from layermem.ops import Fill

PER_BLOCK = 1024  # elements


@kernel(Fill, "fill")
def fill(op: Fill, call: CudaCall) -> Iterator[Launch]:
    count = call.count("y0")
    yield launch(
        "fill", "fill", "FillArgs", ceil_div(count, PER_BLOCK), y=call["y0"], count=count, value=op.value,
        accumulate=call.accumulates("y0"),
    )  # fmt: skip
