"""The reference device: NumPy kernels over views of the arena; memory that NumPy takes in a kernel is not counted."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from layermem.backends.base import Bound, Device, register_device
from layermem.backends.reference.base import REGISTRY, Array, ReferenceCall, axes_of_caffe
from layermem.backends.reference.blas import use_one_thread
from layermem.backends.registry import StepContext
from layermem.graph.ops import Op
from layermem.ops import OpRecord


@register_device("reference")
class ReferenceDevice(Device):
    """`real` may be float64, for gradient checks of whole nets."""

    fusions = frozenset({"BatchNormScale"})

    def __init__(self, real: str = "float32"):
        self.real = real
        use_one_thread()

    def describe(self) -> str:
        return f"NumPy {np.__version__}, the definition of every op"

    def implements(self, record: OpRecord, step: str) -> bool:
        return REGISTRY.implements(record, step)

    def bind(self, op: Op, arrays: Mapping[str, Array], context: StepContext) -> Bound:
        """NumPy cannot add into an output, so a role that accumulates is computed aside and added."""
        views = {role: axes_of_caffe(array) for role, array in arrays.items()}
        call = ReferenceCall(views, context, op=op.name, layer=op.layer_name)
        if not op.accumulates:
            return partial(REGISTRY.bind, op.record, op.step, call)

        def run_and_add() -> None:
            parts = {role: axes_of_caffe(np.empty(arrays[role].shape, arrays[role].dtype)) for role in op.accumulates}
            aside = ReferenceCall({**views, **parts}, context, op=op.name, layer=op.layer_name)
            REGISTRY.bind(op.record, op.step, aside)
            for role, part in parts.items():
                views[role] += part

        return run_and_add
