"""Compares products of whole numbers for every kernel with the naive kernels.  They are large enough for full and
partial tiles in rows and columns, for more stages than the ring of shared memory holds, with a partial last one, and,
on GPUs where warpgroups take several tiles per block, for these.

On a GPU all tiles share a few problems of the size of real layers; an emulated one uses the smallest that a tile needs.
coverage.py computes what each kernel covers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from typing import NamedTuple

import numpy as np

from layermem.backends.cuda.base import FLOAT, CudaCall, suffix
from layermem.backends.cuda.products import gemm_tiles
from layermem.backends.cuda.products.gemm_tiles import (
    ALL_TILES,
    DGRAD,
    ENGINES,
    FPROP,
    PACES_OF_MIXED_WIDTH,
    PACKED_BF16,
    WGRAD,
    GemmEngine,
    engine_for,
)
from layermem.backends.cuda.products.implicit_gemm import conv_dgrad, conv_fprop
from layermem.backends.cuda.products.warpgroup import (
    PACKED_TILES,
    PRECISIONS,
    WARPGROUP_TILES,
    WarpgroupTile,
    engine_of,
)
from layermem.backends.cuda.products.wgrad import SplitK, conv_wgrad
from layermem.backends.cuda.support.launch import Launch, ceil_div
from layermem.backends.cuda.support.moments import NormOperands, Units, batch_moments, gradient_sums
from layermem.ops import MOMENTS_ROWS, ConvProblem
from tests.backends.cuda.harness import Way
from tests.cases.products import (
    FEW_CHANNELS,
    FEW_PARTS,
    IMAGES,
    OCTETS,
    OCTETS_IN_PHASES,
    ODD,
    OF_PATCHES,
    PARTS,
    WORDS,
    WORDS_IN_PHASES,
    Kind,
    patches,
)
from tools.gpu.every_kernel import Check, words
from tools.gpu.exact import stored
from tools.gpu.whole_numbers import Gpu, Operands, Places, said

Tile = gemm_tiles.GemmTile | WarpgroupTile
Wrong = dict[str, str]  # faults by kernel
Run = Callable[[Operands, GemmEngine, Places], Wrong]
ONE_IN = 36  # a brief run makes one in 36 of all checks


# -- runs --------------------------------------------------------------------------------------------------------------


def fprop(operands: Operands, engine: GemmEngine, at: Places) -> Wrong:
    launch = conv_fprop(engine, operands.problem, at.out, at.image, at.weights(engine, FPROP))
    return operands.judged(FPROP, [launch])


def fprop_with_moments(operands: Operands, engine: GemmEngine, at: Places) -> Wrong:
    problem = operands.problem
    moments, wanted = (operands.buffer(role, problem.moments.nbytes) for role in ("moments", "wanted moments"))
    launch = conv_fprop(engine, problem, at.out, at.image, at.weights(engine, FPROP), moments=moments)
    wrong = operands.judged(FPROP, [launch])
    operands.run(batch_moments(Units.of(problem.maps), at.out, wanted, suffix(operands.storage)))
    return _differing(operands, launch, moments, wanted, problem.moments.count, "moments") | wrong


def dgrad(operands: Operands, engine: GemmEngine, at: Places) -> Wrong:
    launch = conv_dgrad(engine, operands.problem, at.out, at.maps, at.weights(engine, DGRAD))
    return operands.judged(DGRAD, [launch])


def dgrad_with_sums(operands: Operands, engine: GemmEngine, at: Places) -> Wrong:
    problem = operands.problem
    sums, wanted = (operands.buffer(role, problem.norm_sums.nbytes) for role in ("sums", "wanted sums"))
    norm = NormOperands(operands.image, *(operands.numbers(problem.c, seed) for seed in range(4, 8)), relu=True)
    struct = {"parts": sums, **norm.struct}
    launch = conv_dgrad(engine, problem, at.out, at.maps, at.weights(engine, DGRAD), norm=struct)
    wrong = operands.judged(DGRAD, [launch])
    operands.run(gradient_sums(Units.of(problem.image), at.out, norm, wanted, suffix(operands.storage)))
    return _differing(operands, launch, sums, wanted, problem.norm_sums.count, "sums") | wrong


def wgrad(operands: Operands, engine: GemmEngine, at: Places) -> Wrong:
    problem, split = operands.problem, split_of(operands.problem)
    launches = [*conv_wgrad(engine, problem, at.out, at.maps, at.image, False, at.parts, split=split)]
    return operands.judged(WGRAD, launches, split.parts)


def _differing(operands: Operands, launch: Launch, got: int, wanted: int, words: int, what: str) -> Wrong:
    """The fault if not exactly `words` words of 32 bits are equal to those that a comparison in memory leaves."""
    found = operands.compare(got, wanted, words, FLOAT)
    function = f"{launch.module}.{launch.function}"
    return {function: said(found, words, f"{what} of a pass over memory")} if found.number else {}


def split_of(problem: ConvProblem) -> SplitK:
    each = ceil_div(problem.n, PARTS if problem.n >= IMAGES else FEW_PARTS)
    return SplitK(each, ceil_div(problem.n, each))


@lru_cache(maxsize=2)
def operands_of(gpu: Gpu, problem: ConvProblem, word: str) -> Operands:
    """The operands and references, which consecutive checks share."""
    parts_bytes = FLOAT * split_of(problem).parts * problem.filter.count
    return Operands(gpu, problem, word, parts_bytes=parts_bytes)


class Large:
    """Like exact.Exact, for a product whose memory and comparison are on the GPU.  `wide_image`: see GemmEngine."""

    def __init__(self, run: Run, problem: ConvProblem, word: str, wide_image: bool, way: Way):
        self.run, self.problem, self.word, self.wide_image, self.way = run, problem, word, wide_image, way
        self.errors: dict[str, float] = {}

    def check(self) -> dict[str, np.ndarray]:
        wrong = self.run_once()
        assert not wrong, "; ".join(f"{function}: {says}" for function, says in wrong.items())
        return {}

    def run_once(self) -> Wrong:
        way, narrow = self.way, () if self.wide_image else ("x0",)
        call = CudaCall(
            {},
            storage=self.word,
            narrow=narrow,
            precision=way.precision,
            capability=way.capability,
            multiprocessors=way.gpu.driver.gpu.multiprocessors,
        )
        operands = operands_of(way.gpu, self.problem, self.word)
        places = operands.places(wide_image=self.wide_image)
        return self.run(operands, engine_of(call, "x0", self.problem), places)


# -- checks by tile ----------------------------------------------------------------------------------------------------


class Variant(NamedTuple):
    name: str
    product: str  # the product whose problem is used
    run: Run


PLAIN = (Variant("fprop", FPROP, fprop), Variant("dgrad", DGRAD, dgrad), Variant("wgrad", WGRAD, wgrad))
OF_DATA = (PLAIN[0], PLAIN[2])
MOMENTS, SUMS = Variant("fprop + moments", FPROP, fprop_with_moments), Variant("dgrad + sums", DGRAD, dgrad_with_sums)


@dataclass(frozen=True)
class Blobs:
    """Operands of a check: products in `precision` of blobs in the type `word`, with the image optionally in fp32."""

    precision: str
    word: str
    wide_image: bool
    small: bool

    def check(self, variant: Variant, kind: Kind, tile: Tile) -> Check:
        by = "warpgroups " if isinstance(tile, WarpgroupTile) else ""
        problem = kind.problem(variant.product, tile, self.small)
        return self._check(f"{variant.name}, {kind.name}", f"{by}{tile.name}", variant.run, problem, tile)

    def checks(self, variants: Iterable[Variant], kind: Kind, tiles: Iterable[Tile]) -> Iterator[Check]:
        for tile in tiles:
            yield from (self.check(each, kind, tile) for each in variants if each.product in tile.products)

    def by_patch(self, outputs: int) -> Check:
        return self._check("fprop", f"by a patch, {outputs} outputs", fprop, patches(outputs, self.small), None)

    def _check(self, what: str, how: str, run: Run, problem: ConvProblem, tile: Tile | None) -> Check:
        name = f"large {what}{stored(self.word)}{' of data' if self.wide_image else ''}, {how}"
        return Check(name, self.precision, partial(Large, run, problem, self.word, self.wide_image), tile)


def large_checks(brief: bool, small: bool) -> Iterator[Check]:
    """Yield checks; `small` uses the smallest problems that fill a tile, `brief` only a few of these."""
    yield from islice(all_checks(small or brief), None, None, ONE_IN if brief else 1)


def all_checks(small: bool) -> Iterator[Check]:
    for precision in ENGINES:
        for word in words(precision):
            blobs = Blobs(precision, word, False, small)
            yield from of_every_gpu(blobs)
            yield from of_fp32_images(replace(blobs, wide_image=bool(word)))
    for precision in PRECISIONS:
        yield from by_warpgroups(Blobs(precision, "", False, small))
    packed = Blobs(PACKED_BF16.precision, PACKED_BF16.storage, False, small)
    for kind in (WORDS, WORDS_IN_PHASES):
        yield from packed.checks(PLAIN, kind, PACKED_TILES)


def of_every_gpu(blobs: Blobs) -> Iterator[Check]:
    engine = engine_for(blobs.precision, blobs.word)
    tiles = engine.tiles
    yield from blobs.checks(PLAIN, OCTETS, tiles)
    yield from blobs.checks((MOMENTS, SUMS), OCTETS, [tile for tile in tiles if tile.m % MOMENTS_ROWS == 0])
    if not engine.is_packed:
        yield from blobs.checks(PLAIN, ODD, [tile for tile in tiles if tile.threads])


def of_fp32_images(blobs: Blobs) -> Iterator[Check]:
    """Yield checks of few channels and, if other blobs are in 16 bits, of all kernels that read single elements."""
    if blobs.wide_image:
        yield from blobs.checks(OF_DATA, ODD, engine_for(blobs.precision, blobs.word, wide_image=True).tiles)
    few = [tile for tile in ALL_TILES if tile.name in PACES_OF_MIXED_WIDTH[blobs.precision]]
    yield from blobs.checks(OF_DATA[1:], FEW_CHANNELS, few)
    yield from (blobs.by_patch(outputs) for outputs in OF_PATCHES)


def by_warpgroups(blobs: Blobs) -> Iterator[Check]:
    yield from blobs.checks((*PLAIN, MOMENTS, SUMS), OCTETS, WARPGROUP_TILES)
    yield from blobs.checks(PLAIN, OCTETS_IN_PHASES, WARPGROUP_TILES)
