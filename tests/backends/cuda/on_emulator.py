"""Memory and launches of the emulator in the place of the driver's, for what keeps its operands on a GPU."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from layermem.backends.cuda.support.launch import Launch
from tests.backends.cuda.harness import Way
from tests.emulator import emulate


class Block:
    """Bytes of the host from a multiple of 256 on."""

    def __init__(self, nbytes: int):
        self.array = np.full(nbytes + 256, 0xFF, np.uint8)
        self.array = self.array[-self.array.ctypes.data % 256 :][:nbytes]

    def __int__(self) -> int:
        return self.array.ctypes.data


class Emulator:
    """As Driver (layermem/backends/cuda/driver/context.py), and as what has one.  It has one multiprocessor, so that
    blocks of products by warpgroups take several tiles."""

    gpu = SimpleNamespace(multiprocessors=1)

    def __init__(self, way: Way):
        self.driver, self.way = self, way
        self._blocks: weakref.WeakSet[Block] = weakref.WeakSet()

    def allocate(self, nbytes: int) -> Block:
        block = Block(nbytes)
        self._blocks.add(block)
        return block

    def fill(self, address: int, byte: int, nbytes: int, stream: str) -> None:
        ctypes.memset(address, byte, nbytes)

    def read(self, into: np.ndarray, address: int) -> None:
        ctypes.memmove(into.ctypes.data, address, into.nbytes)

    def copy_within(self, target: int, source: int, nbytes: int, stream: str) -> Callable[[], None]:
        return lambda: ctypes.memmove(target, source, nbytes) and None

    def launch(self, launch: Launch, context: Mapping[str, Any]) -> None:
        kernels = emulate.load(f"cuda/{launch.module}.cu", self.way.mode, order=self.way.order, copies=self.way.copies)
        buffers = [block.array for block in self._blocks]
        kernels.launch(
            launch.function, launch.grid, launch.block, launch.packed(context), launch.shared, buffers=buffers
        )

    def synchronize(self) -> None: ...
