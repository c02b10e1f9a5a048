"""The base of the cpu backend's kernels: the call that an op is bound to, its launches, and the registry.

A kernel is a function (op, call) -> launches.  It turns the record and the addresses of the call into launches of
`layermem._native.cpu`, which run in order.  It returns None if no native kernel serves the op; then the reference
kernel runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from layermem.backends.registry import KernelCall, KernelRegistry, StepContext
from layermem.errors import InputError

Array = npt.NDArray[Any]
Launch = Callable[[], None]
Launches = Sequence[Launch] | None

MAX_ARRAYS = 256  # most arrays that one native op combines


@dataclass(frozen=True)
class CpuCall(KernelCall):
    """A bound op whose bytes the host can reach: `arrays` are the stored (channels-last) views by role."""

    arrays: Mapping[str, Array] = field(default_factory=dict)

    def itemsize(self, role: str) -> int:
        """Bytes of an element of `role`."""
        return int(self.arrays[role].itemsize)

    def storage_of(self, role: str) -> str:
        """The name of the 16-bit type of `role`, "" in fp32."""
        return self.storage if role in self.narrow else ""

    @classmethod
    def from_arrays(
        cls,
        arrays: Mapping[str, Array],
        context: StepContext,
        *,
        accumulated: Collection[str] = (),
        layer: str = "",
        storage: str = "",
    ) -> CpuCall:
        """A call for arrays; `storage` is the name of the type of 16-bit arrays."""
        narrow = frozenset(role for role, array in arrays.items() if array.dtype == np.uint16)
        addresses = {role: int(array.ctypes.data) for role, array in arrays.items()}
        counts = {role: array.size for role, array in arrays.items()}
        return cls(
            addresses, counts, frozenset(accumulated), context, layer, storage if narrow else "", narrow, arrays=arrays
        )


def naming_layer(call: CpuCall, launch: Launch, remedy: str = "fix the data") -> Launch:
    """Wrap a launch so that its error about a value names the layer."""

    def run() -> None:
        try:
            launch()
        except ValueError as error:
            raise InputError(f"{error}; {remedy}", layer=call.layer) from None

    return run


cpu_kernels: KernelRegistry[CpuCall, Launches] = KernelRegistry("cpu")
kernel = cpu_kernels.kernel
