"""The cpu device: native kernels on addresses in the arena, workspace included.

Every op has a native kernel.  The reference kernel runs only if an Eltwise has more bottoms, or a Split more tops, than
one native op combines (base.MAX_ARRAYS), or if fusing an update saves nothing; its temporaries are outside of the
arena.

The environment variable LAYERMEM_ISA selects the instruction set of the kernels (base, avx2, avx512); the default is
the best one of the machine.  Bits of results depend on it, but not on the number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from layermem._native import cpu
from layermem.backends.base import Bound, register_device, sequence
from layermem.backends.cpu.base import Array, CpuCall, cpu_kernels
from layermem.backends.cpu.inner_product import row_bands
from layermem.backends.cpu.support.launch import launch
from layermem.backends.reference.device import ReferenceDevice
from layermem.backends.registry import StepContext
from layermem.errors import DeviceError, InputError
from layermem.graph.ops import Op
from layermem.ops import FP32, BandRules, InnerProduct, OpRecord
from layermem.utils.free_memory import process_limit
from layermem.utils.units import format_bytes

ISA = "LAYERMEM_ISA"
STACK_BYTES = 2**20  # that kernels may take for their tiles; systems give 8 MiB
WIDEN = {"bfloat16": "widen_bf16", "float16": "widen_fp16"}
NARROW = {"bfloat16": "narrow_bf16", "float16": "narrow_fp16"}


def _set_isa(name: str) -> None:
    try:
        cpu.set_isa(name)
    except ValueError:
        known = ", ".join(cpu.available_isas())
        raise InputError(f"{ISA} is '{name}', which this build does not run; set it to one of {known}") from None


@register_device("cpu")
class CpuDevice(ReferenceDevice):
    fusions = frozenset(
        {
            "BatchNormScale",
            "BatchNormScale+residual",
            "BatchNormScale+residual+relu",
            "Conv+relu",
            "InnerProduct+relu",
            "Eltwise+relu",
            "InnerProduct+update",
        }
    )

    def __init__(self, threads: int | None = None, storage: str = FP32):
        super().__init__(storage=storage)
        if ISA in os.environ:
            _set_isa(os.environ[ISA])
        if threads is not None:
            if threads < 1:
                raise InputError(f"cannot run on {threads} threads; give at least 1")
            cpu.set_threads(threads)

    def load(self) -> None:
        limit = process_limit("STACK")  # of each thread
        if limit is not None and limit < STACK_BYTES:
            raise DeviceError(
                f"device '{self.name}' needs a stack of {format_bytes(STACK_BYTES)}, and the limit is "
                f"{format_bytes(limit)}: raise it (ulimit -s {STACK_BYTES // 1024})"
            )

    @property
    def arithmetic(self) -> str:
        return f"{self.name} {cpu.active_isa()}{self._of_storage}"

    def describe(self) -> str:
        return f"native kernels for {cpu.active_isa()}, {cpu.threads()} threads"

    def workspace_bytes(self, record: OpRecord, step: str, roles: Collection[str]) -> int:
        return cpu_kernels.workspace_bytes(record, step, roles)

    def carry_bytes(self, record: OpRecord, step: str, role: str) -> int | None:
        return cpu_kernels.carry_bytes(record, step, role)

    def sums_in_place(self, record: OpRecord, step: str, role: str, accumulates: bool) -> bool:
        return cpu_kernels.sums_in_place(record, step, role)

    def takes(
        self, record: OpRecord, step: str, dtypes: Mapping[str, str], accumulates: Collection[str]
    ) -> frozenset[str]:
        return cpu_kernels.takes(record, step, dtypes, accumulates)

    def row_bands(self, record: InnerProduct) -> BandRules | None:
        return row_bands(record) if self.storage == FP32 else None

    def implements(self, record: OpRecord, step: str) -> bool:
        return cpu_kernels.implements(record, step)

    def bind_widen(self, target: Array, source: Array, dtype: str, stream: str) -> Bound:
        return launch(WIDEN[dtype], target.size, out=target.ctypes.data, x=source.ctypes.data)

    def bind_narrow(self, target: Array, source: Array, dtype: str, stream: str) -> Bound:
        return launch(NARROW[dtype], target.size, out=target.ctypes.data, x=source.ctypes.data)

    def bind(self, op: Op, arrays: Mapping[str, Array], context: StepContext) -> Bound:
        call = CpuCall.from_arrays(
            arrays, context, accumulated=op.accumulates, layer=op.layer_name, storage=self.storage
        )
        launches = cpu_kernels.bind(op.record, op.step, call)
        return super().bind(op, arrays, context) if launches is None else sequence(launches)
