"""PriorBox: one thread per box."""

from __future__ import annotations

from collections.abc import Iterator

from layermem.backends.cuda.base import CudaCall, kernel
from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, divider, launch
from layermem.ops import PriorBox


@kernel(PriorBox, "forward")
def prior_box_forward(op: PriorBox, call: CudaCall) -> Iterator[Launch]:
    boxes = op.rows * op.columns * len(op.sizes)
    yield launch(
        "prior_box",
        "prior_box",
        "PriorBoxArgs",
        ceil_div(boxes, THREADS),
        y=call["y0"],
        widths=[w for w, _ in op.sizes],
        heights=[h for _, h in op.sizes],
        variance=op.variance,
        by_sizes=divider(len(op.sizes)),
        by_columns=divider(op.columns),
        boxes=boxes,
        image_h=op.image[0],
        image_w=op.image[1],
        clip=op.clip,
        step_h=op.step[0],
        step_w=op.step[1],
        offset=op.offset,
    )
