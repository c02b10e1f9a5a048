"""The two allocations of a run: the arena on the GPU, and the pinned one on the host."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from layermem.backends.arena import PAGE, POISON, UNTOUCHED, WORD_BYTES, Arena, axes_of_caffe
from layermem.backends.cuda.driver.context import Array, Driver
from layermem.ops import Tensor

HostBytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class DeviceSpan:
    """Bytes of the arena on the GPU; `tensor` describes them if they are a blob."""

    address: int
    nbytes: int
    tensor: Tensor | None = None

    @property
    def count(self) -> int:
        return self.tensor.count if self.tensor is not None else self.nbytes

    @property
    def blob(self) -> Tensor:
        assert self.tensor is not None, "these bytes are no blob"
        return self.tensor


class CudaArena(Arena):
    """`nbytes` of the GPU's memory, at addresses that only kernels and copies can use."""

    def __init__(self, driver: Driver, nbytes: int, *, poison: bool = False):
        self.driver, self.nbytes = driver, nbytes
        self.guard_bytes = PAGE if poison else 0  # a run for results allocates only its budget
        self._allocation = driver.allocate(nbytes + self.guard_bytes)
        driver.fill_words(self.address, UNTOUCHED, (nbytes + self.guard_bytes) // WORD_BYTES)

    @property
    def address(self) -> int:
        return int(self._allocation)

    def view(self, offset: int, tensor: Tensor, dtype: str | None = None) -> DeviceSpan:  # type: ignore[override]
        return DeviceSpan(self.address + offset, tensor.count * np.dtype(dtype or tensor.dtype).itemsize, tensor)

    def span(self, offset: int, nbytes: int) -> DeviceSpan:  # type: ignore[override]
        return DeviceSpan(self.address + offset, nbytes)

    def read(self, offset: int, tensor: Tensor, dtype: str | None = None) -> Array:
        stored = np.empty(tensor.stored, dtype or tensor.dtype)
        self.driver.read(stored, self.address + offset)
        return np.array(axes_of_caffe(stored), order="C")

    def write(self, offset: int, tensor: Tensor, value: Array, dtype: str | None = None) -> None:
        stored = np.empty(tensor.stored, dtype or tensor.dtype)
        blob = axes_of_caffe(stored)
        blob[...] = np.asarray(value).reshape(blob.shape)
        self.driver.write(self.address + offset, stored)

    def discard(self, offset: int, nbytes: int) -> None:
        """Do nothing: the allocation is freed as a whole."""

    def zero(self, offset: int, nbytes: int) -> None:
        self.driver.fill(self.address + offset, 0, nbytes)

    def _copy(self, begin: int, end: int) -> HostBytes:
        span = np.empty(end - begin, np.uint8)
        self.driver.read(span, self.address + begin)
        return span


class PinnedArena(Arena):
    """`nbytes` of page-locked host memory, which copy engines reach directly."""

    def __init__(self, driver: Driver, nbytes: int, *, poison: bool = False):
        self.nbytes = nbytes
        self.bytes = driver.pinned(nbytes)
        if poison:
            self.bytes[:] = POISON

    def discard(self, offset: int, nbytes: int) -> None:
        """Do nothing: pinned pages stay where they are until they are freed."""
