"""Runs emulated kernels on NumPy arrays.

    kernels = emulate.load("cuda/pooling.cu", mode="race")
    kernels.launch("max_pool_forward", grid=8, block=256, args=emulate.pack("PPPi", y, argmax, x, count))

The same call serves every mode of build.py.  A launch raises EmulationError where the kernel does what it must not:
divergent barriers (any mode), accesses out of bounds and undefined arithmetic (asan), races and reads of shared memory
that was never written (race).
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.emulator import build as builder
from tests.emulator.hosts import BankUse, EmulationError, Launch, Library, Packed, Worker

__all__ = ["COPIES", "ORDERS", "WAYS", "BankUse", "EmulationError", "Kernels", "Packed", "at", "load", "pack"]

ORDERS = {"forward": 0, "reverse": 1, "shuffled": 2}  # order of threads and blocks
COPIES = {"early": 0, "late": 1, "either": 2}  # completion of asynchronous copies

# All (mode, order, copies) in which every kernel must run.
WAYS = (
    ("plain", "forward", "early"),
    ("plain", "reverse", "late"),
    ("plain", "shuffled", "either"),
    ("asan", "shuffled", "late"),
    ("race", "shuffled", "late"),
)

TILE = re.compile(r"_\d+x\d+_v\d+$")  # end of a name: tile, and elements per access

Dimensions = int | Sequence[int]


def pack(layout: str, *values) -> Packed:
    """Pack a struct with C's layout: format characters of `struct`, where P takes an array, None or an address.

    Pointers inside a larger array: give `at(array, bytes)`.
    """
    pointers: list[tuple[int, np.ndarray]] = []
    plain: list = []
    for kind, value in zip(layout, values, strict=True):
        place = struct.calcsize(layout[: len(plain)] + "0" + kind)
        array, offset = value if isinstance(value, _At) else (value, 0)
        if isinstance(array, np.ndarray):
            pointers.append((place, array))
            plain.append(array.ctypes.data + offset)
        else:
            plain.append(value or 0 if kind == "P" else value)
    widest = max(layout, key=struct.calcsize)
    return Packed(struct.pack(f"{layout}0{widest}", *plain), tuple(pointers))


class _At(tuple):
    pass


def at(array: np.ndarray, offset: int) -> _At:
    """A pointer `offset` bytes into an array."""
    return _At((array, offset))


def load(
    source: str | Path,
    mode: str = "plain",
    *,
    order: str = "shuffled",
    copies: str = "late",
    seed: int = 0,
    defines: Sequence[str] = (),
) -> Kernels:
    """Load the kernels of a source, built for `mode`; `order`, `copies` and `seed` apply to its launches."""
    return Kernels(Module(str(source), mode, tuple(defines)), order=order, copies=copies, seed=seed)


@dataclass(frozen=True)
class Module:
    """A source in one mode, built when one of its kernels is needed.

    Builds of a tile for `asan` and `race` take seconds each: in these modes only launched tiles of the engine are
    built.
    """

    source: str
    mode: str
    defines: tuple[str, ...]

    @property
    def whole(self) -> Library | Worker:
        return _host(self.source, self.mode, self.defines)

    def host_of(self, kernel: str) -> Library | Worker:
        tile = TILE.search(kernel)
        if tile is None or self.mode == "plain":
            return self.whole
        return _host(self.source, self.mode, (*self.defines, f'LM_EMULATE_ONLY="{tile[0]}"'))


@functools.cache
def _host(source: str, mode: str, defines: tuple[str, ...]) -> Library | Worker:
    path = builder.build(source, mode, defines)
    return Worker(path) if mode == "asan" else Library(path)


class Kernels:
    """The kernels of one source in one mode."""

    def __init__(self, module: Module, *, order: str, copies: str, seed: int):
        self.module, self.order, self.copies, self.seed = module, ORDERS[order], COPIES[copies], seed

    @property
    def host(self) -> Library | Worker:
        """The host with all kernels of the source."""
        return self.module.whole

    def launch(
        self,
        name: str,
        grid: Dimensions,
        block: Dimensions,
        args: Packed | bytes,
        shared: int = 0,
        *,
        buffers: Sequence[np.ndarray] = (),
    ) -> None:
        """Launch a kernel and wait for it.  `shared` is the size of dynamic shared memory in bytes.

        Arguments given as bare bytes come with `buffers`, the arrays that their pointers may point into.
        """
        if isinstance(args, bytes):
            args = Packed(args, tuple(_pointers_in(args, buffers)))
        launch = Launch((*_three(grid),), (*_three(block),), shared, self.seed, self.order, self.copies)
        self.module.host_of(name).run(name, launch, args)

    def bank_use(self, name: str, grid: Dimensions, block: Dimensions, args: Packed, shared: int = 0) -> list[BankUse]:
        """Launch in race mode, and return the bank use of every instruction that accessed shared memory."""
        if self.module.mode != "race":
            raise ValueError("only mode 'race' sees single accesses")
        launch = Launch((*_three(grid),), (*_three(block),), shared, self.seed, self.order, self.copies, banks=1)
        host = self.module.host_of(name)
        assert isinstance(host, Library)
        host.run(name, launch, args)
        return host.bank_use()


def _three(dimensions: Dimensions) -> tuple[int, ...]:
    given = (dimensions,) if isinstance(dimensions, int) else tuple(dimensions)
    return (*given, *(1,) * (3 - len(given)))


def _pointers_in(data: bytes, buffers: Sequence[np.ndarray]):
    for place in range(0, len(data) - 7, 8):
        (value,) = struct.unpack_from("P", data, place)
        for array in buffers:
            if array.ctypes.data <= value <= array.ctypes.data + array.nbytes:
                yield place, array
                break
