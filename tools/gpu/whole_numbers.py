"""Products of whole numbers on a GPU, which have the bits of the naive kernels (cuda/check.cu) in every precision.

Operands are from -2 to 2, so that sums are exact; results are rounded to the type of the blobs.  The naive kernels
compute only a part of a large product.  Other kernels are compared completely with the first one that agrees with that
part; if they differ, the naive kernel computes the whole product, which shows the wrong ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from layermem.backends.cuda.base import FLOAT, itemsize
from layermem.backends.cuda.checks import check
from layermem.backends.cuda.products.gemm_tiles import DGRAD, FPROP, WGRAD, GemmEngine
from layermem.backends.cuda.products.weight_tiles import operand_weights, tiles_bytes
from layermem.backends.cuda.support.launch import Launch
from layermem.ops import ConvProblem, Tensor
from layermem.schedule.ir import COMPUTE
from layermem.utils.units import aligned

MAX_MACS = 1 << 30  # size of the part that a naive kernel computes
WRITTEN = {FPROP: "maps", DGRAD: "image", WGRAD: "filter"}
SEEDS = {"image": 1, "maps": 2, "filter": 3}
GUARD, GUARDED, CLEARED = 256, 0xAB, 0xFF  # bytes after a result, and the initial contents of these and the result: NaN
Naive = Callable[[int, int], Iterable[Launch]]  # (address, every) -> launches


class Driver(Protocol):
    """The methods of driver/context.py that are used here."""

    def allocate(self, nbytes: int) -> Any: ...
    def fill(self, address: int, byte: int, nbytes: int, stream: str) -> None: ...
    def read(self, into: np.ndarray, address: int) -> None: ...
    def copy_within(self, target: int, source: int, nbytes: int, stream: str) -> Callable[[], None]: ...
    def synchronize(self) -> None: ...


class Gpu(Protocol):
    """The GPU of gpu.py, or of tests/backends/cuda/on_gpu.py."""

    @property
    def driver(self) -> Driver: ...
    def launch(self, launch: Launch, context: Mapping[str, Any]) -> None: ...


class Places(NamedTuple):
    """Addresses of operands and of a result; `weights` returns the address that an engine reads for a product."""

    maps: int
    image: int
    out: int
    parts: int
    weights: Callable[[GemmEngine, str], int]


class Reference(NamedTuple):
    """The expected result of a product, for one in `every` elements, from `function` or the naive kernel."""

    at: int
    every: int
    function: str = ""


class Operands:
    """The operands of a problem, in their own memory.

    storage      "" or a name in NARROW, for image and maps; results of weight gradients are in fp32
    parts_bytes  size of the workspace of weight gradients, or of other sums in parts
    naive        by product, a function that computes it naively
    """

    def __init__(
        self, gpu: Gpu, problem: ConvProblem, storage: str = "", *, parts_bytes: int = 0, most_macs: int = MAX_MACS
    ) -> None:
        self.gpu, self.problem, self.storage, self.most_macs = gpu, problem, storage, most_macs
        self._held: list[Any] = []
        self._buffers: dict[str, int] = {}
        self._weights: dict[tuple[bool, str], int] = {}
        self._references: dict[str, Reference] = {}
        self.maps, self.image = (self.drawn(role, storage) for role in ("maps", "image"))
        self.filter = self.drawn("filter")
        self.out = self.place(max(self.nbytes(product) for product in WRITTEN) + GUARD)
        self.parts = self.place(max(parts_bytes, check.naive_wgrad_workspace_bytes(problem)))
        self.naive: dict[str, Naive] = {FPROP: self._naive_fprop, DGRAD: self._naive_dgrad, WGRAD: self._naive_wgrad}

    # -- operands ------------------------------------------------------------------------------------------------------

    def places(self, *, wide_image: bool = False) -> Places:
        """The addresses of operands; with `wide_image` the image is in fp32 with any storage."""
        return Places(self.maps, self.wide_image if wide_image else self.image, self.out, self.parts, self.weights)

    @cached_property
    def wide_image(self) -> int:
        return self.drawn("image")

    def weights(self, engine: GemmEngine, product: str) -> int:
        """The address of the weights in the form that the engine reads: in fp32, rounded, or in tiles."""
        if not engine.is_packed:
            return self.filter
        key = product in engine.by_warpgroups, product
        if key not in self._weights:
            at = self.place(max(tiles_bytes(self.problem, product), self.problem.filter.nbytes))
            self._weights[key], rounding = operand_weights(engine, product, self.problem, self.filter, at)
            self.run(rounding)
        return self._weights[key]

    def drawn(self, role: str, word: str = "") -> int:
        return self.numbers(self._tensor(role).count, SEEDS[role], word)

    def numbers(self, count: int, seed: int, word: str = "") -> int:
        """The address of `count` whole numbers."""
        at = self.place(count * itemsize(word))
        self.run([check.draw_whole_numbers(at, count, seed, word)])
        return at

    def buffer(self, role: str, nbytes: int) -> int:
        """A buffer with the same address at each call, filled with NaN."""
        if role not in self._buffers:
            self._buffers[role] = self.place(nbytes)
        self.gpu.driver.fill(self._buffers[role], CLEARED, nbytes, COMPUTE)
        return self._buffers[role]

    def place(self, nbytes: int) -> int:
        self._held.append(self.gpu.driver.allocate(aligned(nbytes)))
        return int(self._held[-1])

    def run(self, launches: Iterable[Launch]) -> None:
        for launch in launches:
            self.gpu.launch(launch, {})

    # -- results -------------------------------------------------------------------------------------------------------

    def count(self, product: str) -> int:
        return self._tensor(WRITTEN[product]).count

    def nbytes(self, product: str) -> int:
        return self.count(product) * self.width(product)

    def width(self, product: str) -> int:
        """Bytes of an element of a result."""
        return itemsize("" if product == WGRAD else self.storage)

    def clear(self, product: str, parts: int = 1) -> None:
        """Fill the result and its parts with NaN, and the bytes after it with a guard."""
        self.gpu.driver.fill(self.out, CLEARED, self.nbytes(product), COMPUTE)
        self.gpu.driver.fill(self.out + self.nbytes(product), GUARDED, GUARD, COMPUTE)
        if parts > 1:
            self.gpu.driver.fill(self.parts, CLEARED, FLOAT * parts * self.count(product), COMPUTE)

    def judged(self, product: str, launches: Sequence[Launch], parts: int = 1) -> dict[str, str]:
        """Run launches and return the faults of the first one, like wrong(); the others add its parts."""
        self.clear(product, parts)
        self.run(launches)
        return self.wrong(product, f"{launches[0].module}.{launches[0].function}")

    def wrong(self, product: str, function: str) -> dict[str, str]:
        """The faults of the result of `function`, and of the earlier result that it differs from, by function."""
        wanted = self._reference(product)
        if self._writes_beyond(product):
            return {function: "writes behind its result"}
        found = self.compare(self.out, wanted.at, self.count(product), self.width(product), wanted.every)
        if not found.number:
            if wanted.every > 1:
                self.gpu.driver.copy_within(wanted.at, self.out, self.nbytes(product), COMPUTE)()
                self._references[product] = Reference(wanted.at, 1, function)
            return {}
        if wanted.function:
            self._references[product] = self._computed(product, 1)
        both = {function: self.out, wanted.function: wanted.at} if wanted.function else {function: self.out}
        return {name: says for name, at in both.items() if (says := self._says(product, at))}

    def compare(self, got: int, wanted: int, count: int, width: int, every: int = 1) -> check.Differences:
        """Compare two results with elements of `width` bytes."""
        found = np.empty(check.found_bytes(count, every), np.uint8)
        at = self.buffer("found", check.found_bytes(check.MAX_BLOCKS * check.THREADS))
        self.run([check.compare(at, got, wanted, count, width, every=every)])
        self._read(found, at)
        return check.differences(found.view(np.uint32))

    def _says(self, product: str, at: int) -> str:
        wanted, count = self._references[product], self.count(product)
        found = self.compare(at, wanted.at, count, self.width(product), wanted.every)
        return said(found, count, "the naive kernel's") if found.number else ""

    def _reference(self, product: str) -> Reference:
        if product not in self._references:
            problem = self.problem
            row = {"maps": problem.k, "image": problem.c, "filter": problem.filter.count // problem.k}
            every = check.every_of(problem, row[WRITTEN[product]], self.most_macs)
            self._references[product] = self._computed(product, every)
        return self._references[product]

    def _computed(self, product: str, every: int) -> Reference:
        at = self.place(self.nbytes(product))
        self.run(self.naive[product](at, every))
        return Reference(at, every)

    def _naive_fprop(self, at: int, every: int) -> Iterable[Launch]:
        return [check.naive_fprop(self.problem, at, self.image, self.filter, storage=self.storage, every=every)]

    def _naive_dgrad(self, at: int, every: int) -> Iterable[Launch]:
        return [check.naive_dgrad(self.problem, at, self.maps, self.filter, storage=self.storage, every=every)]

    def _naive_wgrad(self, at: int, every: int) -> Iterable[Launch]:
        return check.naive_wgrad(self.problem, at, self.maps, self.image, self.parts, storage=self.storage, every=every)

    def _writes_beyond(self, product: str) -> bool:
        guard = np.empty(GUARD, np.uint8)
        self._read(guard, self.out + self.nbytes(product))
        return bool((guard != GUARDED).any())

    def _read(self, into: np.ndarray, address: int) -> None:
        self.gpu.driver.synchronize()
        self.gpu.driver.read(into, address)

    def _tensor(self, role: str) -> Tensor:
        return {"maps": self.problem.maps, "image": self.problem.image, "filter": self.problem.filter}[role]


def said(found: check.Differences, count: int, whose: str) -> str:
    return f"{found.number} of {count} elements have other bits than {whose}, number {found.first} first"
