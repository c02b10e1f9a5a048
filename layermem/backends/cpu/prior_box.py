"""PriorBox: the default boxes of a map of scores."""

from __future__ import annotations

from layermem.backends.cpu.base import CpuCall, Launch, kernel
from layermem.backends.cpu.support.launch import launch
from layermem.ops import PriorBox


@kernel(PriorBox, "forward")
def prior_box_forward(op: PriorBox, call: CpuCall) -> list[Launch]:
    return [
        launch(
            "prior_box",
            size=(op.rows, op.columns),
            widths=[w for w, _ in op.sizes],
            heights=[h for _, h in op.sizes],
            step=op.step,
            offset=op.offset,
            image=op.image,
            clip=op.clip,
            variance=list(op.variance),
            y=call["y0"],
        )
    ]
