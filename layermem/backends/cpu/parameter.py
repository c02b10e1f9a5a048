"""Parameter: a learned blob as a top."""

from __future__ import annotations

from layermem.backends.cpu.base import CpuCall, Launch, kernel
from layermem.backends.cpu.copy import copy_unless_shared
from layermem.ops import Parameter


@kernel(Parameter, "forward")
def parameter_forward(op: Parameter, call: CpuCall) -> list[Launch]:
    return copy_unless_shared(call, "y0", "w0")


@kernel(Parameter, "wgrad")
def parameter_wgrad(op: Parameter, call: CpuCall) -> list[Launch]:
    return copy_unless_shared(call, "dw0", "dy0")
