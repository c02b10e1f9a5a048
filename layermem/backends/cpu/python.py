"""Python: runs the user's code on the arena's memory.

Blobs whose memory has Caffe's order are passed directly.  Others, and gradients that may accumulate, go through the
workspace.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from layermem.backends.arena import axes_of_caffe
from layermem.backends.cpu.base import Array, CpuCall, Launch, kernel
from layermem.backends.cpu.host import copy_in
from layermem.backends.cpu.support.launch import launch
from layermem.ops import Python
from layermem.utils.units import aligned


def staged(op: Python, role: str) -> bool:
    """Whether the code gets a copy in the workspace."""
    return op.tensor(role).interleaved or role.startswith(("dx", "dw"))


def workspace_bytes(op: Python, roles: Collection[str]) -> int:
    return op.staging_bytes(role for role in roles if staged(op, role))


@kernel(Python, "forward", workspace=workspace_bytes)
def python_forward(op: Python, call: CpuCall) -> list[Launch]:
    return _bind(op, call, "forward")


@kernel(Python, "backward", workspace=workspace_bytes)
def python_backward(op: Python, call: CpuCall) -> list[Launch]:
    return _bind(op, call, "backward")


def _bind(op: Python, call: CpuCall, step: str) -> list[Launch]:
    """The copies into the workspace, the code, and the copies out of it."""
    arrays: dict[str, Array] = {}
    before: list[Launch] = []
    after: list[Launch] = []
    workspace = call.arrays.get("workspace", np.empty(0, np.uint8))
    begin = 0
    for role, stored in call.arrays.items():
        if role == "workspace":
            continue
        tensor = op.tensor(role)
        if not staged(op, role):
            arrays[role] = stored.reshape(tensor.shape)
            continue
        span = workspace[begin : begin + tensor.nbytes]
        begin += aligned(tensor.nbytes)
        arrays[role] = span.view(np.float32).reshape(tensor.shape)
        if op.is_written(step, role):
            after.append(_copy_back(stored, arrays[role], call.accumulates(role)))
        else:
            before.append(_copy_out(stored, arrays[role]))
    return [*before, lambda: op.run(step, arrays), *after]


def _copy_out(stored: Array, values: Array) -> Launch:
    """A copy of a channels-last blob in Caffe's order."""
    n, c, h, w = values.shape
    return launch("transpose", n, h * w, c, out=values.ctypes.data, x=stored.ctypes.data)


def _copy_back(stored: Array, values: Array, accumulate: bool) -> Launch:
    def add() -> None:
        blob = axes_of_caffe(stored)
        blob += values

    return add if accumulate else lambda: copy_in(stored, values)
