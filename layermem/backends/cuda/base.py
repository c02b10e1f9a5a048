"""Common parts of all kernels of the cuda backend: the call that an op is bound to, its launches, and the registry.

    @kernel(Pointwise, "forward")
    def pointwise_forward(op: Pointwise, call: CudaCall) -> Iterator[Launch]:
        yield launch("activation", "relu_forward", ..., x=call["x0"], y=call["y0"])

Nothing here needs a GPU or PyCUDA: tests run the same launches under an emulator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from layermem.backends.cuda.support.launch import Launch
from layermem.backends.registry import CARRY, OPEN, KernelCall, KernelRegistry
from layermem.ops import ITEMSIZE, NARROW, BatchSlice, Tensor
from layermem.utils.units import aligned

FLOAT = 4  # bytes
NO_ERROR = -(2**31)  # an error flag as long as every label is valid


def suffix(storage: str) -> str:
    """Suffix of the names of kernels for blobs in this storage (KernelCall)."""
    return f"_{storage}" if storage else ""


def itemsize(storage: str) -> int:
    """Bytes of an element of a blob in this storage."""
    return ITEMSIZE[NARROW[storage]] if storage else FLOAT


@dataclass(frozen=True)
class CudaCall(KernelCall):
    """A bound op; addresses are device addresses.

    precision    precision of matrix products, one of gemm_tiles.ENGINES
    error_flag   address of an int that kernels raise to the largest invalid label; 0 if the op reads no labels
    capability   compute capability, "90" for sm_90; without one the engine for every GPU computes products
    multiprocessors   their number; 0 means that of the nominal GPU.  They change grids, but no bit of a result
    step_scalars   address of the values that change from step to step (step_scalars.py)
    """

    precision: str = "fp32"
    error_flag: int = 0
    capability: str = ""
    multiprocessors: int = 0
    step_scalars: int = 0

    @property
    def suffix(self) -> str:
        """Suffix of the names of kernels for 16-bit blobs."""
        return suffix(self.storage)

    @property
    def itemsize(self) -> int:
        """Bytes of an element of a 16-bit blob, or of a float."""
        return itemsize(self.storage)

    def sums(self, role: str) -> bool:
        """Whether the op adds to the sum `role`: it has the role itself, or its carry between slices of the batch."""
        return role in self or role + CARRY in self

    def carry(self, role: str, otherwise: int = 0) -> int:
        """The address of the carry of `role` between slices of the batch; `otherwise` if the op computes it whole."""
        return self.addresses.get(role + CARRY, otherwise)

    def open(self, role: str) -> int:
        """The address of the open sums of `role` between slices of the batch; 0 without any."""
        return self[role + OPEN]


cuda_kernels: KernelRegistry[CudaCall, Iterable[Launch]] = KernelRegistry("cuda", adds_narrow=True)
kernel = cuda_kernels.kernel


def sums_role(role: str, roles: Collection[str]) -> bool:
    """The result of CudaCall.sums for the roles of an op."""
    return role in roles or role + CARRY in roles


def whole_batch(tensor: Tensor, batch_slice: BatchSlice | None) -> Tensor:
    """The blob of the whole batch, given the blob of the items of `batch_slice`."""
    if batch_slice is None:
        return tensor
    rows, *others = tensor.shape
    return replace(tensor, shape=(rows // batch_slice.count * batch_slice.items, *others))


class Workspace:
    """Allocates aligned pieces of a workspace from its start; from address 0 on it counts the bytes needed."""

    def __init__(self, address: int = 0):
        self.start = self.next = address

    def take(self, nbytes: int) -> int:
        address, self.next = self.next, self.next + aligned(nbytes)
        return address

    @property
    def nbytes(self) -> int:
        """Bytes that were allocated so far."""
        return self.next - self.start
