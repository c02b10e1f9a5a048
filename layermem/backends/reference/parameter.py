"""Parameter: a learned blob as a top."""

from __future__ import annotations

from layermem.backends.reference.base import ReferenceCall, kernel
from layermem.ops import Parameter


@kernel(Parameter, "forward")
def parameter_forward(op: Parameter, call: ReferenceCall) -> None:
    call["y0"][...] = call["w0"]


@kernel(Parameter, "wgrad")
def parameter_wgrad(op: Parameter, call: ReferenceCall) -> None:
    call["dw0"][...] = call["dy0"]
