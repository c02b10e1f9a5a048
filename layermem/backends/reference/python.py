"""Python: runs the user's code on contiguous arrays in Caffe's order."""

from __future__ import annotations

import numpy as np

from layermem.backends.reference.base import ReferenceCall, kernel
from layermem.ops import Python


@kernel(Python, "forward")
def python_forward(op: Python, call: ReferenceCall) -> None:
    _run(op, call, "forward")


@kernel(Python, "backward")
def python_backward(op: Python, call: ReferenceCall) -> None:
    _run(op, call, "backward")


def _run(op: Python, call: ReferenceCall, step: str) -> None:
    written = [role for role in call.arrays if op.is_written(step, role)]
    arrays = {role: np.array(array, order="C") for role, array in call.arrays.items()}
    op.run(step, arrays)
    for role in written:
        call[role][...] = arrays[role]
