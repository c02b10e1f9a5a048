"""From an op to launches: what a kernel is called with, packed once when the schedule is bound.

    @kernel("ReLU.forward")
    def relu_forward(layer, b):              b: addresses by role
        yield launch("activation", "relu_forward", ..., x=b["x0"], y=b["y0"])

Nothing here needs a GPU or PyCUDA: tests run the same launches under an emulator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import count, takewhile
from types import MappingProxyType
from typing import Any

from layermem.backends.cuda.struct_layout import Later, Patch, layout
from layermem.errors import InputError
from layermem.utils.units import aligned

MOST_BLOCKS = (2**31 - 1, 65535, 65535)  # of a grid's axes
NO_ERROR = -(2**31)  # the int at role "error_flag" as long as every label names a class
THREADS = 256  # of a block, where nothing speaks for another number


@dataclass(frozen=True)
class Launch:
    """cuda/<module>.cu: `function` over `grid` blocks of `block` threads; `args` is the packed struct.

    patches  parts of args that are computed from the context before each launch
    """

    module: str
    function: str
    grid: tuple[int, int, int]
    block: int
    args: bytes
    shared: int = 0
    patches: tuple[Patch, ...] = ()

    def packed(self, context: Mapping[str, Any]) -> bytes:
        """The struct as this moment's context has it."""
        data = bytearray(self.args)
        for patch in self.patches:
            patch.write(data, context)
        return bytes(data)


class Addresses:
    """Device addresses of an op's roles: 0 for what the op does not have.  `precision` is that of matrix products.

    "workspace" is its workspace; "error_flag" an int that outlives it, for what only a kernel can see (loss.py).
    """

    def __init__(
        self, addresses: Mapping[str, int], accumulates: Collection[str] = (),
        counts: Mapping[str, int] = MappingProxyType({}), precision: str = "fp32",
    ):  # fmt: skip
        self._addresses, self._accumulates, self._counts = addresses, frozenset(accumulates), counts
        self.precision = precision

    def __getitem__(self, role: str) -> int:
        return self._addresses.get(role, 0)

    def __contains__(self, role: str) -> bool:
        return role in self._addresses

    def count(self, role: str) -> int:
        """Elements of its buffer, for ops that have no layer to tell."""
        return self._counts[role]

    def numbered(self, stem: str) -> list[int]:
        """The addresses of stem0, stem1, .. as far as they go."""
        return [self._addresses[f"{stem}{i}"] for i in takewhile(lambda i: f"{stem}{i}" in self, count())]

    def accumulates(self, role: str) -> bool:
        """Whether the result for `role` is added to what is there."""
        return role in self._accumulates


class Workspace:
    """Hands out a workspace from its start, in aligned pieces; from address 0 on it counts what would be needed."""

    def __init__(self, address: int = 0):
        self.start = self.next = address

    def take(self, nbytes: int) -> int:
        address, self.next = self.next, self.next + aligned(nbytes)
        return address

    @property
    def nbytes(self) -> int:
        """Handed out so far."""
        return self.next - self.start


Kernel = Callable[[Any, Addresses], Iterable[Launch]]
WorkspaceBytes = Callable[[Any, Collection[str]], int]

KERNELS: dict[str, Kernel] = {}
WORKSPACES: dict[str, WorkspaceBytes] = {}


def kernel(*names: str) -> Callable[[Kernel], Kernel]:
    """Register the launches of ops "Type.step"."""

    def register(function: Kernel) -> Kernel:
        for name in names:
            KERNELS[name] = function
        return function

    return register


def workspace_bytes(*names: str) -> Callable[[WorkspaceBytes], WorkspaceBytes]:
    """Register how many workspace bytes ops "Type.step" need, from the layer and the roles that an op has."""

    def register(function: WorkspaceBytes) -> WorkspaceBytes:
        for name in names:
            WORKSPACES[name] = function
        return function

    return register


def launch(
    module: str, function: str, args: str, grid: int | tuple[int, ...], block: int = THREADS, *, shared: int = 0,
    **values: Any,
) -> Launch:  # fmt: skip
    """A launch whose struct `args` is packed from `values`; a value may be `Later`."""
    blocks = (grid,) if isinstance(grid, int) else grid
    x, y, z = (*blocks, 1, 1)[:3]
    if any(n > most for n, most in zip((x, y, z), MOST_BLOCKS, strict=True)):
        raise InputError(
            f"would start {function} over a grid of {x} x {y} x {z}, more than CUDA takes; use a smaller batch"
        )
    data, patches = layout(module, args).pack(values)
    return Launch(module, function, (x, y, z), block, data, shared, patches)


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def divider(divisor: int) -> dict[str, int]:
    """A Divider of cuda/common.cuh: n / divisor = (n multiplier >> 32) >> shift for n < 2^31.

    With l = ceil(log2 divisor) the multiplier floor(2^(31 + l) / divisor) + 1 has 32 bits and is large enough.
    """
    if divisor == 1:
        return {"divisor": 1, "multiplier": 0, "shift": 0}
    bits = (divisor - 1).bit_length()
    return {"divisor": divisor, "multiplier": (1 << (31 + bits)) // divisor + 1, "shift": bits - 1}


def width(*counts: int) -> int:
    """4 where all counts are multiples of 4, so that a kernel may move 16 bytes at a time; else 1."""
    return 1 if any(count % 4 for count in counts) else 4


__all__ = [
    "KERNELS", "NO_ERROR", "THREADS", "WORKSPACES", "Addresses", "Later", "Launch", "Workspace", "ceil_div", "divider",
    "kernel", "launch", "width", "workspace_bytes",
]  # fmt: skip
