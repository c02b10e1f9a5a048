"""Axpy: the launches of a Scale, and a sum."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from layermem.backends.cuda import scale
from layermem.backends.cuda.base import CudaCall, kernel
from layermem.backends.cuda.copy import copy
from layermem.backends.cuda.eltwise import sum_blobs
from layermem.backends.cuda.support.launch import Launch
from layermem.ops import Axpy
from layermem.ops.axpy import AS_SCALE


@kernel(Axpy, "forward")
def axpy_forward(op: Axpy, call: CudaCall) -> Iterator[Launch]:
    yield from scale.scale_forward(op.scale, call.renamed(AS_SCALE))
    yield sum_blobs(call["y0"], [call["y0"], call["x2"]], op.x.count)


def backward_workspace_bytes(op: Axpy, roles: Collection[str]) -> int:
    return scale.backward_workspace_bytes(
        replace(op.scale, batch_slice=op.batch_slice), [AS_SCALE.get(role, role) for role in roles]
    )


@kernel(Axpy, "backward", workspace=backward_workspace_bytes)
def axpy_backward(op: Axpy, call: CudaCall) -> Iterator[Launch]:
    yield from scale.scale_backward(replace(op.scale, batch_slice=op.batch_slice), call.renamed(AS_SCALE))


@kernel(Axpy, "residual_backward")
def axpy_residual_backward(op: Axpy, call: CudaCall) -> Iterator[Launch]:
    yield from copy(call["dx2"], call["dy0"], op.x.count, call.accumulates("dx2"))
