"""PriorBox: corners of boxes around the centres of a grid."""

from __future__ import annotations

import numpy as np

from layermem.backends.reference.base import ReferenceCall, kernel
from layermem.ops import PriorBox


@kernel(PriorBox, "forward")
def prior_box_forward(op: PriorBox, call: ReferenceCall) -> None:
    centers = [
        (np.arange(count, dtype=np.float32) + np.float32(op.offset)) * np.float32(step)
        for count, step in zip((op.rows, op.columns), op.step, strict=True)
    ]
    half = np.array(op.sizes, np.float32) / 2
    boxes = np.empty((op.rows, op.columns, len(op.sizes), 4))
    for axis, (center, size) in enumerate(((centers[1][None, :, None], 1), (centers[0][:, None, None], 0))):
        boxes[..., axis] = (center.astype(float) - half[:, axis]) / op.image[size]
        boxes[..., 2 + axis] = (center.astype(float) + half[:, axis]) / op.image[size]
    y = call["y0"].reshape(2, -1)
    y[0] = (np.clip(boxes, 0, 1) if op.clip else boxes).reshape(-1)
    y[1] = np.tile(op.variance, boxes.size // 4)
    call["y0"][...] = y.reshape(call["y0"].shape)
