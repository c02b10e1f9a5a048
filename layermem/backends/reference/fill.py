"""Constants."""

from __future__ import annotations

from layermem.backends.reference.base import ReferenceCall, kernel
from layermem.ops import Fill


@kernel(Fill, "fill")
def fill(op: Fill, call: ReferenceCall) -> None:
    call["y0"][...] = op.value * call.context["loss_scale"] if op.scaled else op.value
