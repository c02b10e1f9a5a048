"""What all kernels of the cuda backend share: the call that an op is bound to, its launches, and the registry.

    @kernel(Pointwise, "forward")
    def pointwise_forward(op: Pointwise, call: CudaCall) -> Iterator[Launch]:
        yield launch("activation", "relu_forward", ..., x=call["x0"], y=call["y0"])

Nothing here needs a GPU or PyCUDA: tests run the same launches under an emulator.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from layermem.backends.cuda.launch import Launch
from layermem.backends.registry import KernelCall, KernelRegistry
from layermem.utils.units import aligned

FLOAT = 4  # bytes
NO_ERROR = -(2**31)  # an error flag as long as every label is valid


@dataclass(frozen=True)
class CudaCall(KernelCall):
    """A bound op; addresses are the device's.

    precision    of matrix products, one of implicit_gemm.ENGINES
    error_flag   address of an int that kernels raise to the largest invalid label; 0 where the op reads no labels
    """

    precision: str = "fp32"
    error_flag: int = 0


cuda_kernels: KernelRegistry[CudaCall, Iterable[Launch]] = KernelRegistry("cuda")
kernel = cuda_kernels.kernel


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
