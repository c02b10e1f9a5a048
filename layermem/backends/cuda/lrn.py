"""LRN, across channels in shared memory, or within them in two kernels."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from layermem.backends.cuda.launch import THREADS, Addresses, Launch, ceil_div, divider, kernel, launch, workspace_bytes
from layermem.errors import InputError

MOST_CHANNELS = 4096  # three rows of a pixel in 48 KiB
ELEMENTS = 2048  # of the pixels that a block takes


def lrn(layer: Any, function: str, y: int, x: int, dy: int = 0, ratio: int = 0, accumulate: bool = False) -> Launch:
    n, channels, height, width = layer.bottoms[0].shape
    pixels, count = n * height * width, layer.bottoms[0].count
    each = max(1, ELEMENTS // channels)
    rows = 0 if not layer.across else 3 if dy else 1
    if layer.across and channels > MOST_CHANNELS:
        raise InputError(f"normalizes across {channels} channels; the cuda device takes up to {MOST_CHANNELS}")
    return launch(
        "lrn", function, "LrnArgs", ceil_div(pixels, each) if layer.across else ceil_div(count, THREADS),
        shared=4 * rows * each * channels, y=y, x=x, dy=dy, ratio=ratio, pixels_all=pixels, pixels=each,
        height=height, width=width, channels=channels, size=layer.size, by_channels=divider(channels),
        by_width=divider(width), by_height=divider(height), share=layer.share, shift=layer.shift, beta=layer.beta,
        accumulate=accumulate,
    )  # fmt: skip


@kernel("LRN.forward")
def forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield lrn(layer, "lrn_across_forward" if layer.across else "lrn_within_forward", b["y0"], b["x0"])


@kernel("LRN.backward")
def backward(layer: Any, b: Addresses) -> Iterator[Launch]:
    dx, x, dy, accumulate = b["dx0"], b["x0"], b["dy0"], b.accumulates("dx0")
    if layer.across:
        yield lrn(layer, "lrn_across_backward", dx, x, dy, accumulate=accumulate)
        return
    for step in ("ratio", "backward"):
        yield lrn(layer, f"lrn_within_{step}", dx, x, dy, b["workspace"], accumulate)


@workspace_bytes("LRN.backward")
def backward_bytes(layer: Any, roles: Collection[str]) -> int:
    return 0 if layer.across else layer.bottoms[0].nbytes
