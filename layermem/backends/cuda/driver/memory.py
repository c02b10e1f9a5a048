"""The two allocations of a run: the arena on the card, and the pinned one on the host."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layermem.backends.arena import POISON, Arena, axes_of_caffe
from layermem.backends.cuda.driver.context import Driver
from layermem.layers import Tensor


@dataclass(frozen=True)
class Place:
    """Bytes of the arena on the card; `tensor` is what lies there, if it is a blob."""

    address: int
    nbytes: int
    tensor: Tensor | None = None

    @property
    def count(self) -> int:
        return self.tensor.count if self.tensor is not None else self.nbytes


class CudaArena(Arena):
    """`nbytes` of the card's memory, at addresses that only kernels and copies can use."""

    def __init__(self, driver: Driver, nbytes: int, *, poison: bool = False):
        self.driver, self.nbytes = driver, nbytes
        self._allocation = driver.allocate(nbytes)
        if poison:
            driver.fill(self.address, POISON, nbytes)

    @property
    def address(self) -> int:
        return int(self._allocation)

    def view(self, offset: int, tensor: Tensor, dtype: str | None = None) -> Place:  # type: ignore[override]
        return Place(self.address + offset, tensor.count * np.dtype(dtype or tensor.dtype).itemsize, tensor)

    def span(self, offset: int, nbytes: int) -> Place:  # type: ignore[override]
        return Place(self.address + offset, nbytes)

    def read(self, offset: int, tensor: Tensor, dtype: str | None = None) -> np.ndarray:
        stored = np.empty(tensor.stored, dtype or tensor.dtype)
        self.driver.read(stored, self.address + offset)
        return np.array(axes_of_caffe(stored), order="C")

    def write(self, offset: int, tensor: Tensor, value: np.ndarray, dtype: str | None = None) -> None:
        stored = np.empty(tensor.stored, dtype or tensor.dtype)
        home = axes_of_caffe(stored)
        home[...] = np.asarray(value).reshape(home.shape)
        self.driver.write(self.address + offset, stored)

    def zero(self, offset: int, nbytes: int) -> None:
        self.driver.fill(self.address + offset, 0, nbytes)


class PinnedArena(Arena):
    """`nbytes` of the host's memory that stay in place, so that copies need not wait for anything."""

    def __init__(self, driver: Driver, nbytes: int, *, poison: bool = False):
        self.nbytes = nbytes
        self.bytes = driver.pinned(nbytes)
        if poison:
            self.bytes[:] = POISON
