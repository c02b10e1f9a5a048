"""The cpu device: native kernels on addresses in the arena, scratch included.

Every op has one.  The reference's runs only where an Eltwise has more bottoms, or a Split more tops, than one native op
combines (elements.MOST_ARRAYS), and then takes NumPy's scratch beside the arena's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from layermem._native import cpu
from layermem.backends.base import Bound, in_turn, register_device
from layermem.backends.cpu.base import BINDINGS, SCRATCH, Args
from layermem.backends.reference.device import ReferenceDevice
from layermem.backends.registry import StepContext
from layermem.errors import InputError
from layermem.graph.ops import Op


@register_device("cpu")
class CpuDevice(ReferenceDevice):
    fuses = frozenset(
        {"BatchNormScale", "ConvolutionReLU", "InnerProductReLU", "EltwiseReLU", "InnerProduct.backward_update"}
    )

    def __init__(self, threads: int | None = None):
        super().__init__()
        if threads is not None:
            if threads < 1:
                raise InputError(f"cannot run on {threads} threads; give at least 1")
            cpu.set_threads(threads)

    def describe(self) -> str:
        return f"native kernels for {cpu.vector_unit()}, {cpu.threads()} threads"

    def workspace(self, kernel: str, layer: object, roles: Collection[str], accumulates: Collection[str]) -> int:
        return SCRATCH[kernel](layer, roles) if kernel in SCRATCH else 0

    def bind(self, op: Op, arrays: Mapping[str, np.ndarray], context: StepContext) -> Bound:
        binding = BINDINGS.get(op.kernel)
        launches = binding(Args(op, arrays, context)) if binding is not None else None
        if launches is None:
            return super().bind(op, arrays, context)
        return in_turn(launches)
