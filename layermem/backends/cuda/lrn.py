"""Local response normalization."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from layermem.backends.cuda.base import FLOAT, CudaCall, kernel
from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, divider, launch, vector_width
from layermem.errors import InputError
from layermem.ops import LRN

MAX_CHANNELS = 4096  # so that three rows of a pixel fit 48 KiB
ELEMENTS = 2048  # limit of the pixels of a block


def lrn(
    op: LRN, function: str, y: int, x: int, dy: int = 0, ratio: int = 0, accumulate: bool = False, suffix: str = ""
) -> Launch:
    n, channels, height, width = op.x.shape
    rows = 0 if not op.across else 3 if dy else 1  # rows of a pixel in shared memory
    if op.across and channels > MAX_CHANNELS:
        raise InputError(f"normalizes across {channels} channels; the cuda device takes up to {MAX_CHANNELS}")
    pixels, each, v = n * height * width, max(1, ELEMENTS // channels), vector_width(channels)
    blocks = ceil_div(pixels, each) if op.across else ceil_div(op.x.count, THREADS * v)
    return launch(
        "lrn",
        f"{function}_v{v}{suffix}",
        "LrnArgs",
        blocks,
        shared=FLOAT * rows * each * channels,
        y=y,
        x=x,
        dy=dy,
        ratio=ratio,
        pixels_all=pixels,
        pixels=each,
        height=height,
        width=width,
        channels=channels,
        size=op.size,
        by_channels=divider(channels),
        by_width=divider(width),
        by_height=divider(height),
        alpha=op.alpha,
        k=op.k,
        beta=op.beta,
        accumulate=accumulate,
    )


@kernel(LRN, "forward", narrow="x0|y0")
def lrn_forward(op: LRN, call: CudaCall) -> Iterator[Launch]:
    function = "lrn_across_forward" if op.across else "lrn_within_forward"
    yield lrn(op, function, call["y0"], call["x0"], suffix=call.suffix)


def lrn_backward_workspace_bytes(op: LRN, roles: Collection[str]) -> int:
    return 0 if op.across else op.x.nbytes


@kernel(LRN, "backward", workspace=lrn_backward_workspace_bytes, narrow="x0|dx0|dy0")
def lrn_backward(op: LRN, call: CudaCall) -> Iterator[Launch]:
    dx, x, dy, accumulate = call["dx0"], call["x0"], call["dy0"], call.accumulates("dx0")
    if op.across:
        yield lrn(op, "lrn_across_backward", dx, x, dy, accumulate=accumulate, suffix=call.suffix)
        return
    for function in ("lrn_within_ratio", "lrn_within_backward"):
        yield lrn(op, function, dx, x, dy, call.workspace, accumulate, call.suffix)
