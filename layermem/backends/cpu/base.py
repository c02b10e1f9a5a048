"""How an op of a schedule becomes native launches: a binding per op, "Type.step", from roles to addresses.

A binding gets `Args` and returns the launches to call in order, or None where no kernel serves this layer's geometry:
then the reference kernel runs in its place.  `scratch` says the workspace that the launches need, in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from layermem.backends.registry import KernelCall, KernelRegistry, StepContext
from layermem.graph.ops import Op

Launch = Callable[[], Any]
Binding = Callable[["Args"], "Sequence[Launch] | None"]
Scratch = Callable[[Any, Collection[str]], int]  # (layer, roles) -> bytes

BINDINGS: dict[str, Binding] = {}
SCRATCH: dict[str, Scratch] = {}


class Args:
    """One op's addresses by role (0 for a role that it does not have), and what its launches depend on."""

    def __init__(self, op: Op, arrays: Mapping[str, np.ndarray], context: StepContext):
        self.kernel, self.layer, self.arrays, self.context = op.kernel, op.layer, arrays, context
        self._accumulates = frozenset(op.accumulates)
        self._addresses = {role: int(array.ctypes.data) for role, array in arrays.items()}

    def __getitem__(self, role: str) -> int:
        return self._addresses.get(role, 0)

    def has(self, role: str) -> bool:
        return role in self._addresses

    def adds(self, role: str) -> bool:
        """Whether the op adds to what `role` holds, rather than writing it."""
        return role in self._accumulates

    def count(self, role: str) -> int:
        return int(self.arrays[role].size)

    @property
    def scratch(self) -> int:
        return self["workspace"]


def binds(*names: str, scratch: Scratch | None = None) -> Callable[[Binding], Binding]:
    """Register the binding of ops, and their workspace."""

    def register(binding: Binding) -> Binding:
        for name in names:
            BINDINGS[name] = binding
            if scratch is not None:
                SCRATCH[name] = scratch
        return binding

    return register


Array = npt.NDArray[Any]
Launches = Sequence[Launch] | None

MAX_ARRAYS = 256  # that one native op combines


@dataclass(frozen=True)
class CpuCall(KernelCall):
    """A bound op whose bytes the host can reach: `arrays` are the stored (channels-last) views by role."""

    arrays: Mapping[str, Array] = field(default_factory=dict)

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, Array], context: StepContext, *, accumulated: Collection[str] = (), layer: str = ""
    ) -> CpuCall:
        addresses = {role: int(array.ctypes.data) for role, array in arrays.items()}
        counts = {role: array.size for role, array in arrays.items()}
        return cls(addresses, counts, frozenset(accumulated), context, layer, arrays)


cpu_kernels: KernelRegistry[CpuCall, Launches] = KernelRegistry("cpu")
kernel = cpu_kernels.kernel
