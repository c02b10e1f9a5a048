"""The reference device: NumPy kernels over views of the arena.  Scratch inside NumPy is not counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from layermem.backends.base import Bound, Device, register_device
from layermem.backends.reference import update  # noqa: F401  (registers its kernels)
from layermem.backends.reference.base import KERNELS, Buffers, axes_of_caffe
from layermem.backends.reference.blas import use_one_thread
from layermem.graph.ops import Op


@register_device("reference")
class ReferenceDevice(Device):
    """`real` may be float64, for gradient checks of whole nets."""

    fuses = frozenset({"BatchNormScale"})

    def __init__(self, real: str = "float32"):
        self.real = real
        use_one_thread()

    def describe(self) -> str:
        return f"NumPy {np.__version__}, the definition of every op"

    def has_kernel(self, kernel: str) -> bool:
        return kernel in KERNELS

    def bind(self, op: Op, arrays: Mapping[str, np.ndarray], context: Mapping[str, Any]) -> Bound:
        kernel, layer = KERNELS[op.kernel], op.layer
        views = {role: axes_of_caffe(array) for role, array in arrays.items()}
        if not op.accumulates:
            buffers = Buffers(views, context)
            return lambda: kernel(layer, buffers)

        def run_and_add() -> None:
            fresh = {role: axes_of_caffe(np.empty(arrays[role].shape, arrays[role].dtype)) for role in op.accumulates}
            kernel(layer, Buffers({**views, **fresh}, context))
            for role, part in fresh.items():
                views[role] += part

        return run_and_add
