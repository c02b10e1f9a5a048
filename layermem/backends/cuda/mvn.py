"""MVN: one block per image and a few channels, or per image."""

from __future__ import annotations

from collections.abc import Iterator

from layermem.backends.cuda.base import CudaCall, kernel
from layermem.backends.cuda.support.launch import Launch, ceil_div, launch
from layermem.ops import MVN

LANES = 32  # channels of a block


def mvn(op: MVN, call: CudaCall, step: str, y: int, x: int, saved: int, accumulate: bool) -> Launch:
    outer, size, inner = op.layout
    lanes = min(LANES, 1 << (inner - 1).bit_length())
    return launch(
        "mvn",
        f"mvn_{step}",
        "MvnArgs",
        (outer, ceil_div(inner, lanes)),
        y=y,
        x=x,
        saved=saved,
        inv_std=call["inv_std"],
        size=size,
        inner=inner,
        lanes=lanes,
        normalize=op.normalize,
        accumulate=accumulate,
        eps=op.eps,
    )


@kernel(MVN, "forward")
def mvn_forward(op: MVN, call: CudaCall) -> Iterator[Launch]:
    yield mvn(op, call, "forward", call["y0"], call["x0"], 0, False)


@kernel(MVN, "backward")
def mvn_backward(op: MVN, call: CudaCall) -> Iterator[Launch]:
    yield mvn(op, call, "backward", call["dx0"], call["dy0"], call["y0"], call.accumulates("dx0"))
