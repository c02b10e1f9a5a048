"""MVN: normalizes each map, or each image, to mean 0 and variance 1."""

from __future__ import annotations

from layermem.backends.cpu.base import CpuCall, Launch, kernel
from layermem.backends.cpu.support.launch import launch
from layermem.ops import MVN


@kernel(MVN, "forward")
def mvn_forward(op: MVN, call: CpuCall) -> list[Launch]:
    return [
        launch(
            "mvn_forward",
            axis=op.layout,
            y=call["y0"],
            x=call["x0"],
            inv_std=call["inv_std"],
            normalize=op.normalize,
            eps=op.eps,
        )
    ]


@kernel(MVN, "backward")
def mvn_backward(op: MVN, call: CpuCall) -> list[Launch]:
    return [
        launch(
            "mvn_backward",
            axis=op.layout,
            dx=call["dx0"],
            dy=call["dy0"],
            y=call["y0"],
            inv_std=call["inv_std"],
            accumulate=call.accumulates("dx0"),
        )
    ]
