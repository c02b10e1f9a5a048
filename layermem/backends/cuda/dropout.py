"""Dropout: the same words are drawn forward, backward and in a replay; the step is filled in before each launch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from layermem.backends.cuda.launch import Addresses, Later, Launch, ceil_div, kernel, launch
from layermem.backends.cuda.shape import copy

WORD = 0xFFFFFFFF


def dropout(layer: Any, y: int, x: int, accumulate: bool) -> Iterator[Launch]:
    count = layer.tops[0].count
    if layer.identity:
        yield from copy(y, x, count, accumulate)
        return
    yield launch(
        "dropout", "dropout", "DropoutArgs", ceil_div(count, 1024), y=y, x=x, count=count, accumulate=accumulate,
        threshold=layer.threshold, scale=layer.scale, stream=layer.stream & WORD,
        seed=Later(lambda context: context["seed"] & WORD), step_low=Later(lambda context: context["step"] & WORD),
        step_high=Later(lambda context: context["step"] >> 32 & WORD),
    )  # fmt: skip


@kernel("Dropout.forward")
def forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield from dropout(layer, b["y0"], b["x0"], False)


@kernel("Dropout.backward")
def backward(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield from dropout(layer, b["dx0"], b["dy0"], b.accumulates("dx0"))
