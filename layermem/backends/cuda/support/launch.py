"""A kernel launch: function, grid and packed arguments, made once when the schedule is bound."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.backends.cuda.support.struct_layout import layout
from layermem.backends.registry import StepContext
from layermem.backends.struct_layout import Later, Patch, StructValue, StructValues
from layermem.errors import InputError

MAX_GRID = (2**31 - 1, 65535, 65535)  # blocks along each axis
THREADS = 256  # per block, by default


@dataclass(frozen=True)
class Launch:
    """cuda/<module>.cu: `function` over `grid` blocks of `block` threads; `args` is the packed struct.

    shared        bytes of dynamic shared memory of a block
    patches       parts of args that are computed from the context before the first launch
    reads_step    whether it reads the scalars of the step, which are then written before it (step_scalars.py)
    alternatives  launches with the same results whose blocks need less and less shared memory, for smaller GPUs
    """

    module: str
    function: str
    grid: tuple[int, int, int]
    block: int
    args: bytes
    shared: int = 0
    patches: tuple[Patch, ...] = ()
    reads_step: bool = False
    alternatives: tuple[Launch, ...] = ()

    def packed(self, context: StepContext) -> bytes:
        """The struct with its patches written for this context."""
        data = bytearray(self.args)
        for patch in self.patches:
            patch.write(data, context)
        return bytes(data)


def launch(
    module: str,
    function: str,
    args: str,
    grid: int | tuple[int, ...],
    block: int = THREADS,
    *,
    shared: int = 0,
    base: StructValues | None = None,
    step: int | None = None,
    **values: StructValue,
) -> Launch:
    """A launch whose struct `args` is packed from `base` and `values`; a value may be `Later`.  InputError for a grid
    that CUDA does not accept.

    step   address of the scalars of the step, for a struct that has the member `step`
    """
    blocks = (grid,) if isinstance(grid, int) else grid
    x, y, z = (*blocks, 1, 1)[:3]
    if not is_grid((x, y, z)):
        raise InputError(
            f"would start {function} over a grid of {x} x {y} x {z}, more than CUDA takes; use a smaller batch"
        )
    reads_step = {} if step is None else {"step": step}
    data, patches = layout(module, args).pack({**(base or {}), **values, **reads_step})
    return Launch(module, function, (x, y, z), block, data, shared, patches, step is not None)


def is_grid(blocks: tuple[int, int, int]) -> bool:
    """Whether CUDA accepts a grid with these numbers of blocks along its axes."""
    return all(n <= most for n, most in zip(blocks, MAX_GRID, strict=True))


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def divider(divisor: int) -> dict[str, int]:
    """The fields of a Divider of cuda/common.cuh: n / divisor = (n multiplier >> 32) >> shift for n < 2^31.

    With l = ceil(log2 divisor) the multiplier floor(2^(31 + l) / divisor) + 1 has 32 bits and is large enough.
    """
    if divisor == 1:
        return {"divisor": 1, "multiplier": 0, "shift": 0}
    bits = (divisor - 1).bit_length()
    return {"divisor": divisor, "multiplier": (1 << (31 + bits)) // divisor + 1, "shift": bits - 1}


def vector_width(*counts: int) -> int:
    """Floats per access: 4 if all counts are multiples of 4, which allows accesses of 16 bytes; otherwise 1."""
    return 1 if any(count % 4 for count in counts) else 4


__all__ = ["THREADS", "Later", "Launch", "ceil_div", "divider", "is_grid", "launch", "vector_width"]
