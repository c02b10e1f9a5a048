"""Constants."""

from __future__ import annotations

from layermem.backends.cpu.base import CpuCall, Launch, kernel
from layermem.backends.cpu.support.launch import launch
from layermem.ops import Fill


@kernel(Fill, "fill")
def fill(op: Fill, call: CpuCall) -> list[Launch]:
    count, out, accumulate, context = call.count("y0"), call["y0"], call.accumulates("y0"), call.context

    def fill_with(value: float) -> Launch:
        return launch("pointwise", "fill", count, out=out, alpha=value, accumulate=accumulate)

    return [lambda: fill_with(op.value * context["loss_scale"])()] if op.scaled else [fill_with(op.value)]
