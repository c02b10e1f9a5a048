"""What all kernels of the cuda backend share: the call that an op is bound to, its launches, and the registry.

    @kernel(Pointwise, "forward")
    def pointwise_forward(op: Pointwise, call: CudaCall) -> Iterator[Launch]:
        yield launch("activation", "relu_forward", ..., x=call["x0"], y=call["y0"])

Nothing here needs a GPU or PyCUDA: tests run the same launches under an emulator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from layermem.backends.cuda.launch import Launch
from layermem.backends.registry import CARRY, OPEN, KernelCall, KernelRegistry
from layermem.ops import ITEMSIZE, NARROW, BatchSlice, Tensor
from layermem.utils.units import aligned

FLOAT = 4  # bytes
NO_ERROR = -(2**31)  # an error flag as long as every label is valid


def suffix(storage: str) -> str:
    """Behind the names of kernels for blobs in this storage (KernelCall)."""
    return f"_{storage}" if storage else ""


def itemsize(storage: str) -> int:
    """Bytes of an element of such a blob."""
    return ITEMSIZE[NARROW[storage]] if storage else FLOAT


@dataclass(frozen=True)
class CudaCall(KernelCall):
    """A bound op; addresses are the device's.

    precision    of matrix products, one of gemm_tiles.ENGINES
    error_flag   address of an int that kernels raise to the largest invalid label; 0 where the op reads no labels
    capability   of the GPU: "90" for sm_90; without one the engine of every GPU computes products
    multiprocessors   of the GPU; 0 for as many as the nominal one has.  They change grids, and no bit
    step_scalars   address of what changes from step to step (step_scalars.py)
    """

    precision: str = "fp32"
    error_flag: int = 0
    capability: str = ""
    multiprocessors: int = 0
    step_scalars: int = 0

    @property
    def suffix(self) -> str:
        """Behind the names of kernels for blobs in 16 bits."""
        return suffix(self.storage)

    @property
    def itemsize(self) -> int:
        """Bytes of an element of such a blob, or of a float."""
        return itemsize(self.storage)

    def sums(self, role: str) -> bool:
        """Whether the op adds to the sum `role`: it has the role itself, or what slices of the batch carry of it."""
        return role in self or role + CARRY in self

    def carry(self, role: str, otherwise: int = 0) -> int:
        """The address of what slices of the batch carry of `role`; `otherwise` where the op computes it whole."""
        return self.addresses.get(role + CARRY, otherwise)

    def open(self, role: str) -> int:
        """The address of what slices of the batch leave open of `role`, 0 where they leave nothing."""
        return self[role + OPEN]


cuda_kernels: KernelRegistry[CudaCall, Iterable[Launch]] = KernelRegistry("cuda", adds_narrow=True)
kernel = cuda_kernels.kernel


def sums_role(role: str, roles: Collection[str]) -> bool:
    """CudaCall.sums, of the roles of an op."""
    return role in roles or role + CARRY in roles


def whole_batch(tensor: Tensor, part: BatchSlice | None) -> Tensor:
    """The blob of all items, from that of the items of `part`."""
    if part is None:
        return tensor
    rows, *others = tensor.shape
    return replace(tensor, shape=(rows // part.count * part.items, *others))


class Workspace:
    """Hands out a workspace from its start, in aligned pieces; from address 0 on it counts the bytes needed."""

    def __init__(self, address: int = 0):
        self.start = self.next = address

    def take(self, nbytes: int) -> int:
        address, self.next = self.next, self.next + aligned(nbytes)
        return address

    @property
    def nbytes(self) -> int:
        """Handed out so far."""
        return self.next - self.start
