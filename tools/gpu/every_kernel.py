"""Checks that launch every kernel of cuda/ at least once, on small shapes: tests/tools/test_gpu_check.py compares the
launches with the declarations in the sources.

Checks that reach a kernel of every module come first: FIRST in tests/cases/gpu.py, and one of each engine of products.
Warpgroups, which can hang in the most ways, come last.

A new kernel of a layer needs a small case in tests/cases, which `select` finds.  A kernel of a fusion, precision, blob
type or tile needs a line in products(); one that no layer launches, a case in tests/backends/cuda/single_ops.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from layermem.backends.cuda.products import gemm_tiles, warpgroup
from layermem.backends.cuda.products.gemm_tiles import ALL_TILES, ENGINES, PACES_OF_MIXED_WIDTH, PACKED_BF16, GemmTile
from layermem.backends.cuda.products.warpgroup import PACKED_TILES, WARPGROUP_TILES, WarpgroupTile
from layermem.ops import MOMENTS_ROWS, NARROW
from tests.backends.cuda.harness import Case, Way, case_of, close
from tests.backends.cuda.on_gpu import Gpu
from tests.backends.cuda.single_ops import Triple, single_ops
from tests.cases import CASES, select
from tests.cases.gpu import BRIEF, BY_WARPGROUPS, BY_WIDTH, FIRST, OF_FEW, OF_WORDS
from tools.gpu.exact import Exact, by_patch, exact_cases, in_16_bits, stored, with_moments, with_sums

OF_PATCHES = (96, 64)  # numbers of outputs, each with its own tile
BOUND = 2e-6  # bound of the errors of single ops


class Checked(Protocol):
    """An object such as Case, Exact or Rounded; `errors` are relative, by the name of the checked result."""

    errors: dict[str, float]

    def check(self) -> dict[str, np.ndarray]: ...
    def run_once(self) -> object: ...


class Check(NamedTuple):
    """A case by name; products may choose only `tile`, by warpgroups if it is one of theirs; `storage` is the type of
    16-bit blobs."""

    name: str
    precision: str
    make: Callable[[Way], Checked]
    tile: gemm_tiles.GemmTile | WarpgroupTile | None = None
    storage: str = ""

    @property
    def engine(self) -> tuple[str, str, type]:
        """Identifies the modules of its products, if it has a tile."""
        return self.precision, self.storage, type(self.tile)

    def way(self, gpu: Gpu) -> Way:
        """The way to run it; the capability is that of warpgroups only if these are checked."""
        capability = warpgroup.CAPABILITY if isinstance(self.tile, WarpgroupTile) else ""
        return Way(precision=self.precision, gpu=gpu, capability=capability)

    def runs_on(self, capability: str) -> bool:
        return not isinstance(self.tile, WarpgroupTile) or capability == warpgroup.CAPABILITY

    @contextmanager
    def tiles(self) -> Iterator[None]:
        """A context in which products choose only `tile`, and all run by warpgroups if it is one of theirs."""
        kept = gemm_tiles.TILES, warpgroup.WARPGROUP_TILES, warpgroup.PACKED_TILES, warpgroup.THRESHOLDS
        if isinstance(self.tile, WarpgroupTile):
            warpgroup.THRESHOLDS = warpgroup.NO_THRESHOLDS
            if self.tile.is_packed:
                of_others = (each for each in PACKED_TILES if each.products != self.tile.products)
                warpgroup.PACKED_TILES = (self.tile, *of_others)
            else:
                warpgroup.WARPGROUP_TILES = (self.tile,)
        elif self.tile:
            gemm_tiles.TILES = (self.tile,)
        try:
            yield
        finally:
            gemm_tiles.TILES, warpgroup.WARPGROUP_TILES, warpgroup.PACKED_TILES, warpgroup.THRESHOLDS = kept


class Rounded:
    """A check like Exact, for results that differ from the expected ones by rounding."""

    def __init__(self, triples: Callable[[Way], Iterator[Triple]], way: Way):
        self.triples, self.way = triples, way
        self.errors: dict[str, float] = {}

    def check(self) -> dict[str, np.ndarray]:
        found = {}
        for name, got, want in self.triples(self.way):
            self.errors[name] = close(name, got, want, BOUND)
            found[name] = got
        return found

    def run_once(self) -> None:
        for _ in self.triples(self.way):
            pass


def every_kernel(brief: bool) -> Iterator[Check]:
    """Yield all checks in the order in which they are run."""
    first, rest, engines = [], [], set()
    for check in all_checks(brief):
        is_first = check.engine not in engines if check.tile else check.name in FIRST
        (first if is_first else rest).append(check)
        engines.add(check.engine)
    yield from (*first, *rest)


def all_checks(brief: bool) -> Iterator[Check]:
    for name in BRIEF if brief else [case.name for case in select("small")]:
        yield Check(name, "fp32", partial(case_of, CASES[name]))
    for name, triples in single_ops():
        yield Check(name, "fp32", partial(Rounded, triples))
    for name, make in exact_cases(brief):
        yield Check(name, "fp32", make)
    yield from products(brief)
    yield from warpgroup_checks(brief)


def products(brief: bool) -> Iterator[Check]:
    """Yield checks of every tile in every precision, on blobs of every type: alone, and with epilogues for other
    ops."""
    few, last = slice(1 if brief else None), slice(-1 if brief else 0, None)
    for precision in ENGINES:
        for word in words(precision):
            engine = PACKED_BF16 if word and precision == "bf16" else ENGINES[precision]
            for tile in engine.tiles[last]:
                for name, make in [*of_tile(precision, word, tile)][few]:
                    yield Check(f"{name}{stored(word)}, {tile.name}", precision, make, tile, word)
            for outputs in OF_PATCHES[last]:
                make = partial(Exact, partial(by_patch, outputs, word=word))
                yield Check(f"conv_fprop by a patch, {outputs} outputs{stored(word)}", precision, make)
        for tile in [tile for tile in ALL_TILES if tile.name in PACES_OF_MIXED_WIDTH[precision]][last]:
            yield Check(f"{OF_FEW.name}, {tile.name}", precision, partial(case_of, OF_FEW), tile)


def words(precision: str) -> tuple[str, ...]:
    """Types of blobs that products take, "" for fp32."""
    if precision in gemm_tiles.WIDENING:
        return ("", *NARROW)
    return ("", "bf16") if precision == "bf16" else ("",)


def of_tile(precision: str, word: str, tile: GemmTile) -> Iterator[tuple[str, Callable[[Way], Case | Exact]]]:
    if word:
        for name in ("Convolution by octets", *BY_WIDTH):
            yield name, partial(Exact, partial(in_16_bits, name, word))
    else:
        for name in BY_WIDTH:
            yield name, partial(case_of, CASES[name])
    if tile.m % MOMENTS_ROWS == 0:
        yield "dgrad + sums", partial(Exact, partial(with_sums, "octets", word=word))


def warpgroup_checks(brief: bool) -> Iterator[Check]:
    for precision in warpgroup.PRECISIONS:
        for name in BY_WARPGROUPS[: 1 if brief else None]:
            for tile in WARPGROUP_TILES[-1:] if brief else WARPGROUP_TILES:
                yield Check(f"{name}, warpgroups {tile.name}", precision, partial(case_of, CASES[name]), tile)
        for tile in WARPGROUP_TILES[-1:] if brief else WARPGROUP_TILES:
            for name, pairs in (("fprop + moments", with_moments), ("dgrad + sums", with_sums)):
                make = partial(Exact, partial(pairs, "octets"))
                yield Check(f"{name}, warpgroups {tile.name}", precision, make, tile)
    for tile in PACKED_TILES:
        make = partial(Exact, partial(in_16_bits, OF_WORDS, "bf16"))
        yield Check(f"{OF_WORDS.name} in bf16, warpgroups {tile.name}", "bf16", make, tile, "bf16")
