"""The epilogue of a fused op: it adds a residual, writes the mask and applies the ReLU before the result is stored."""

from __future__ import annotations

import numpy as np

from layermem.backends.reference.activation import pack
from layermem.backends.reference.base import Array, ReferenceCall
from layermem.ops import EndsInRelu


def finish_epilogue(op: EndsInRelu, call: ReferenceCall, y: Array, *, relu: bool, residual: bool) -> None:
    """Store y [+ x1] or its ReLU in the top, and the mask where the op declares it."""
    if residual:
        y = y + call["x1"]
    call["y0"][...] = np.maximum(y, 0) if relu else y
    if "mask" in call:
        call["mask"][...] = pack(call["y0"] > op.largest_zero)
