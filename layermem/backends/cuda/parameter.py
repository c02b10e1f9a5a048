"""Parameter: a learned blob as a top."""

from __future__ import annotations

from collections.abc import Iterator

from layermem.backends.cuda.base import CudaCall, kernel
from layermem.backends.cuda.copy import copy
from layermem.backends.cuda.support.launch import Launch
from layermem.ops import Parameter


@kernel(Parameter, "forward")
def parameter_forward(op: Parameter, call: CudaCall) -> Iterator[Launch]:
    yield from copy(call["y0"], call["w0"], op.x.count)


@kernel(Parameter, "wgrad")
def parameter_wgrad(op: Parameter, call: CudaCall) -> Iterator[Launch]:
    yield from copy(call["dw0"], call["dy0"], op.x.count, call.accumulates("dw0"))
