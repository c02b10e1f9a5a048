"""The reference device: NumPy kernels over views of the arena; temporaries of NumPy within a kernel are not counted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

import numpy as np

from layermem.backends.base import Bound, Device, register_device
from layermem.backends.reference.base import REGISTRY, Array, ReferenceCall, axes_of_caffe
from layermem.backends.reference.support.blas import use_one_thread
from layermem.backends.registry import StepContext
from layermem.errors import DeviceError, InputError
from layermem.graph.ops import Op
from layermem.ops import FP32, BandRules, InnerProduct, OpRecord, Python


@register_device("reference")
class ReferenceDevice(Device):
    """The device; `real` may be float64, for gradient checks of whole nets."""

    fusions = frozenset({"BatchNormScale"})

    def __init__(self, real: str = "float32", storage: str = FP32):
        self.real = real
        self._set_storage(storage)
        if real != "float32" and storage != FP32:
            raise InputError(f"blobs of {real} are stored as they are; leave the storage {storage} out")
        use_one_thread()

    def describe(self) -> str:
        return f"NumPy {np.__version__}, the definition of every op"

    def workspace_bytes(self, record: OpRecord, step: str, roles: Collection[str]) -> int:
        return REGISTRY.workspace_bytes(record, step, roles)

    def carry_bytes(self, record: OpRecord, step: str, role: str) -> int | None:
        nbytes = REGISTRY.carry_bytes(record, step, role)  # for blobs in float32
        return None if nbytes is None else nbytes * np.dtype(self.real).itemsize // np.dtype(np.float32).itemsize

    def takes(
        self, record: OpRecord, step: str, dtypes: Mapping[str, str], accumulates: Collection[str]
    ) -> frozenset[str]:
        return REGISTRY.takes(record, step, dtypes, accumulates)

    def row_bands(self, record: InnerProduct) -> BandRules | None:
        return BandRules(sums_dx=False) if self.storage == FP32 else None  # sums of bands would be rounded

    def implements(self, record: OpRecord, step: str) -> bool:
        return REGISTRY.implements(record, step)

    def bind(self, op: Op, arrays: Mapping[str, Array], context: StepContext) -> Bound:
        """Bind an op.  NumPy cannot add into an output, so a role that accumulates is computed separately and added."""
        views = {role: axes_of_caffe(array) for role, array in arrays.items()}
        call = ReferenceCall(views, context, op=op.name, layer=op.layer_name)
        if not op.accumulates:
            return partial(self._run, op, partial(REGISTRY.bind, op.record, op.step, call))

        def run_and_add() -> None:
            parts = {role: axes_of_caffe(np.empty(arrays[role].shape, arrays[role].dtype)) for role in op.accumulates}
            aside = ReferenceCall({**views, **parts}, context, op=op.name, layer=op.layer_name)
            REGISTRY.bind(op.record, op.step, aside)
            for role, part in parts.items():
                views[role] += part

        return partial(self._run, op, run_and_add)

    def _run(self, op: Op, kernel: Bound) -> None:
        """Run a kernel; DeviceError, with the layer, if NumPy cannot allocate its temporaries.  Numbers that are not
        finite are no warning, except in the user's own code: the loss shows them."""
        try:
            with np.errstate(all=None if isinstance(op.record, Python) else "ignore"):
                kernel()
        except MemoryError as error:
            raise DeviceError(
                f"layer '{op.layer_name}' needs more memory beside the arena than this machine gives ({error}); use "
                "--device cpu, which needs none, or a smaller --batch"
            ) from error
