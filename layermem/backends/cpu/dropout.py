"""Dropout: a counter-based generator selects the elements to keep, so backward draws the same numbers."""

from __future__ import annotations

from functools import lru_cache

from layermem.backends.cpu.base import CpuCall, Launch, kernel
from layermem.backends.cpu.copy import copy_unless_shared
from layermem.backends.cpu.support.launch import StepLaunch, launch
from layermem.backends.cpu.support.slices import rows_of_batch
from layermem.ops import Dropout


@kernel(Dropout, "forward")
def dropout_forward(op: Dropout, call: CpuCall) -> list[Launch]:
    return dropout(op, call, "y0", "x0")


@kernel(Dropout, "backward")
def dropout_backward(op: Dropout, call: CpuCall) -> list[Launch]:
    return dropout(op, call, "dx0", "dy0")


def dropout(op: Dropout, call: CpuCall, out: str, x: str) -> list[Launch]:
    if op.identity:
        return copy_unless_shared(call, out, x)
    context, first = call.context, rows_of_batch(op, call.count(out))["first"]

    @lru_cache(maxsize=1)
    def bind(seed: int) -> StepLaunch:
        return launch(
            "dropout",
            call.count(out),
            out=call[out],
            x=call[x],
            ratio=op.threshold / 2**32,
            seed=seed,
            stream=op.stream,
            accumulate=call.accumulates(out),
            first=first,
        )

    return [lambda: bind(context["seed"])(context["step"])]  # the seed is set after binding
