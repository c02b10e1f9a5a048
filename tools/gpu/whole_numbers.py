"""Products of whole numbers on a GPU, whose bits are those of the naive kernels (cuda/check.cu) in every precision.

Operands are from -2 to 2, so that sums are exact; results are rounded as blobs are stored.  The naive kernels compute a
part of a large product.  The first kernel that agrees with that part is what others are compared with as a whole; if
they differ, the naive kernel computes all of it, and says which of them are wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from layermem.backends.cuda import check
from layermem.backends.cuda.base import FLOAT
from layermem.backends.cuda.implicit_gemm import DGRAD, FPROP, WGRAD, Engine
from layermem.backends.cuda.launch import Launch
from layermem.backends.cuda.weight_tiles import operand_weights, tiles_bytes
from layermem.ops import ITEMSIZE, NARROW, ConvProblem
from layermem.schedule.ir import COMPUTE
from layermem.utils.units import aligned

MOST_MACS = 1 << 30  # of the part that a naive kernel computes
WRITTEN = {FPROP: "maps", DGRAD: "image", WGRAD: "filter"}
SEEDS = {"image": 1, "maps": 2, "filter": 3}
GUARD, GUARDED, CLEARED = 256, 0xAB, 0xFF  # bytes behind a result, and what they and the result hold before: NaN


class Memory(Protocol):
    """What is used of driver/context.py."""

    def allocate(self, nbytes: int) -> Any: ...
    def fill(self, address: int, byte: int, nbytes: int, stream: str) -> None: ...
    def read(self, into: np.ndarray, address: int) -> None: ...
    def copy_within(self, target: int, source: int, nbytes: int, stream: str) -> Callable[[], None]: ...
    def launcher(self, wanted: Launch, args: bytes, stream: str) -> Callable[[], None]: ...
    def synchronize(self) -> None: ...


class Places(NamedTuple):
    """Addresses of operands and of a result; `weights` gives those that an engine reads for a product."""

    maps: int
    image: int
    out: int
    parts: int
    weights: Callable[[Engine, str], int]


class Reference(NamedTuple):
    """What a product must leave, in one of `every` runs; `function` left it, or the naive kernel."""

    at: int
    every: int
    function: str = ""


class Operands:
    """Those of a problem, in memory of their own.

    storage      "" or a word of NARROW, of image and maps; results of weight gradients are in fp32
    parts_bytes  of the workspace of weight gradients, or of other sums in parts
    """

    def __init__(
        self, memory: Memory, problem: ConvProblem, storage: str = "", *, parts_bytes: int = 0,
        most_macs: int = MOST_MACS,
    ) -> None:  # fmt: skip
        self.memory, self.problem, self.storage, self.most_macs = memory, problem, storage, most_macs
        self._held: list[Any] = []
        self._weights: dict[tuple[bool, str], int] = {}
        self._references: dict[str, Reference] = {}
        self.maps, self.image, self.filter = (self.drawn(role) for role in ("maps", "image", "filter"))
        self.out = self.place(max(self.nbytes(product) for product in WRITTEN) + GUARD)
        self.parts = self.place(max(parts_bytes, check.naive_wgrad_workspace_bytes(problem)))

    def places(self, *, wide_image: bool = False) -> Places:
        image = self.drawn("image", wide=True) if wide_image and self.storage else self.image
        return Places(self.maps, image, self.out, self.parts, self.weights)

    def place(self, nbytes: int) -> int:
        self._held.append(self.memory.allocate(aligned(nbytes)))
        return int(self._held[-1])

    def drawn(self, role: str, *, wide: bool = False) -> int:
        """The address of a blob, or of the weights, of whole numbers; `wide`: in fp32 whatever the storage."""
        count = self._tensor(role).count
        word = "" if wide or role == "filter" else self.storage
        at = self.place(count * _itemsize(word))
        self.run([check.draw_whole_numbers(at, count, SEEDS[role], word)])
        return at

    def weights(self, engine: Engine, product: str) -> int:
        """As the engine reads them: in fp32, rounded, or in tiles."""
        if not engine.is_packed:
            return self.filter
        key = product in engine.by_warpgroups, product
        if key not in self._weights:
            room = self.place(max(tiles_bytes(self.problem, product), self.problem.filter.nbytes))
            self._weights[key], rounding = operand_weights(engine, product, self.problem, self.filter, room)
            self.run(rounding)
        return self._weights[key]

    def run(self, launches: Iterable[Launch]) -> None:
        for launch in launches:
            self.memory.launcher(launch, launch.packed({}), COMPUTE)()

    def count(self, product: str) -> int:
        return self._tensor(WRITTEN[product]).count

    def nbytes(self, product: str) -> int:
        return self.count(product) * self.itemsize(product)

    def itemsize(self, product: str) -> int:
        return FLOAT if product == WGRAD else _itemsize(self.storage)

    def clear(self, product: str, parts: int = 1) -> None:
        """The result, and its parts, are NaN; behind the result is a guard."""
        self.memory.fill(self.out, CLEARED, self.nbytes(product), COMPUTE)
        self.memory.fill(self.out + self.nbytes(product), GUARDED, GUARD, COMPUTE)
        if parts > 1:
            self.memory.fill(self.parts, CLEARED, FLOAT * parts * self.count(product), COMPUTE)

    def wrong(self, product: str, function: str) -> dict[str, str]:
        """What is wrong with the result that `function` left, and with the one before that it differs from, by
        function."""
        wanted, size = self._reference(product), self.itemsize(product)
        if self._writes_beyond(product):
            return {function: "wrote behind its result"}
        found = self.compare(self.out, wanted.at, self.count(product), size, wanted.every)
        if not found.number:
            if wanted.every > 1:
                self.memory.copy_within(wanted.at, self.out, self.nbytes(product), COMPUTE)()
                self._references[product] = Reference(wanted.at, 1, function)
            return {}
        if wanted.function:
            self._references[product] = self._naive(product, 1)
        return {
            name: says for name, at in ((function, self.out), (wanted.function, wanted.at))
            if name and (says := self._says(product, at))
        }  # fmt: skip

    def compare(self, got: int, wanted: int, count: int, itemsize: int, every: int = 1) -> check.Differences:
        found = np.empty(check.found_bytes(count, every) // 4, np.uint32)
        at = self.memory.allocate(found.nbytes)
        self.run([check.compare(int(at), got, wanted, count, itemsize, every=every)])
        self._read(found, int(at))
        return check.differences(found)

    def _says(self, product: str, at: int) -> str:
        wanted, count = self._references[product], self.count(product)
        found = self.compare(at, wanted.at, count, self.itemsize(product), wanted.every)
        return said(found, count, "the naive kernel's") if found.number else ""

    def _reference(self, product: str) -> Reference:
        if product not in self._references:
            columns = self.problem.filter.count // self.problem.k if product == WGRAD else 0
            pitch = {FPROP: self.problem.k, DGRAD: self.problem.c, WGRAD: columns}[product]
            every = check.every_of(self.problem, pitch, self.most_macs)
            self._references[product] = self._naive(product, every)
        return self._references[product]

    def _naive(self, product: str, every: int) -> Reference:
        at, problem = self.place(self.nbytes(product)), self.problem
        how: Mapping[str, Any] = {"storage": self.storage, "every": every}
        if product == FPROP:
            self.run([check.naive_fprop(problem, at, self.image, self.filter, **how)])
        elif product == DGRAD:
            self.run([check.naive_dgrad(problem, at, self.maps, self.filter, **how)])
        else:
            self.run(check.naive_wgrad(problem, at, self.maps, self.image, self.parts, **how))
        return Reference(at, every)

    def _writes_beyond(self, product: str) -> bool:
        guard = np.empty(GUARD, np.uint8)
        self._read(guard, self.out + self.nbytes(product))
        return bool((guard != GUARDED).any())

    def _read(self, into: np.ndarray, address: int) -> None:
        self.memory.synchronize()
        self.memory.read(into, address)

    def _tensor(self, role: str) -> Any:
        return {"maps": self.problem.maps, "image": self.problem.image, "filter": self.problem.filter}[role]


def said(found: check.Differences, count: int, whose: str) -> str:
    return f"{found.number} of {count} elements have other bits than {whose}, number {found.first} first"


def _itemsize(word: str) -> int:
    return ITEMSIZE[NARROW[word]] if word else FLOAT
