"""Checks kernels that must have the bits of others: epilogues of products against the ops that they replace, and
kernels on 16-bit blobs against those in fp32 between conversions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from unittest.mock import patch

import numpy as np

from layermem.backends.cuda.products import conv_patch
from layermem.backends.cuda.products.gemm_tiles import DGRAD, FPROP
from layermem.backends.narrow import narrowed, widened
from layermem.ops import NARROW
from tests.backends.cuda.conv_moments import forward, moments
from tests.backends.cuda.conversions import run_narrow, run_widen
from tests.backends.cuda.harness import Way
from tests.backends.cuda.masked_dgrad import masked_dgrad
from tests.backends.cuda.narrow_steps import TAKING, taken_steps
from tests.backends.cuda.norm_sums import dgrad
from tests.backends.cuda.weight_tiles import run_tile_weights, tiled, weights_of
from tests.cases import CASES
from tests.cases.fused import FUSED, first_layer
from tests.op_case import OpCase

Pair = tuple[str, np.ndarray, np.ndarray]  # (name, result of a kernel, expected result)
PRODUCTS = ("dgrad + mask", "fprop + moments", "dgrad + sums")  # cases that depend on the precision of products
CONVERTED = ((1, 0), (1025, 1), (4100, 4), (100_000, 0))  # elements, and elements before the first one


class Exact:
    """A check like tests.backends.cuda.harness.Case, for pairs of results with the same bits."""

    def __init__(self, pairs: Callable[[Way], Iterator[Pair]], way: Way):
        self.pairs, self.way = pairs, way
        self.errors: dict[str, float] = {}

    def check(self) -> dict[str, np.ndarray]:
        found = {}
        for name, got, want in self.pairs(self.way):
            assert got.tobytes() == want.tobytes(), f"{name} has other bits"
            found[name] = got
        return found

    check_once = check

    def run_once(self) -> None:
        """Make all launches of check_once(), whatever their results."""
        for _ in self.pairs(self.way):
            pass


def exact_cases(brief: bool) -> Iterator[tuple[str, Callable[[Way], Exact]]]:
    """Yield names, and functions that make the case for a way; those in PRODUCTS exist for every precision."""
    few = slice(1 if brief else None)
    for op, pairs in zip((*PRODUCTS, "tiles of weights"), (masked, with_moments, with_sums, tiles_of_weights)):
        for name in [*FUSED[op]][few]:
            yield f"{op}: {name}", partial(Exact, partial(pairs, name))
    for word, dtype in NARROW.items():
        yield f"conversions of {word}", partial(Exact, partial(conversions, dtype, CONVERTED[: 2 if brief else None]))
        for name in TAKING[few]:
            yield f"{name} in {word}", partial(Exact, partial(in_16_bits, name, word))


def stored(word: str) -> str:
    """The suffix of the name of a case with blobs in this type."""
    return f" in {word}" if word else ""


def masked(name: str, way: Way) -> Iterator[Pair]:
    for adds in (False, True):
        together, apart = masked_dgrad(name, adds, way, np.random.default_rng(3))
        yield f"dx0{' added' if adds else ''}", together, apart


def with_moments(name: str, way: Way) -> Iterator[Pair]:
    y, found, _ = forward(FUSED["fprop + moments"][name], way, np.random.default_rng(3))
    yield "moments", found, moments(y)


def with_sums(name: str, way: Way, word: str = "") -> Iterator[Pair]:
    wanted, sums, _ = dgrad(name, way, np.random.default_rng(3), word=word)
    yield "sums", sums, wanted + np.float32(0)  # a sum begins with 0, so no sum is -0


def by_patch(outputs: int, way: Way, word: str = "") -> Iterator[Pair]:
    """Yield conv_fprop of an fp32 image of few channels, compared with the kernel that copies every window."""
    problem = first_layer(outputs)
    found = forward(problem, way, np.random.default_rng(3), word, wide_image=bool(word))
    with patch.object(conv_patch, "pays", lambda *given: False):
        wanted = forward(problem, way, np.random.default_rng(3), word, wide_image=bool(word))
    yield from zip(("y0", "moments"), found, wanted[:2])


def conversions(dtype: str, sizes: Sequence[tuple[int, int]], way: Way) -> Iterator[Pair]:
    for count, begin in sizes:
        rng = np.random.default_rng(count)
        bits = rng.integers(0, 1 << 16, count, np.uint16)
        numbers = ~np.isnan(widened(bits, dtype))  # bits of NaN may differ
        yield f"{count} widened", run_widen(bits, dtype, begin, way)[numbers], widened(bits, dtype)[numbers]
        values = np.float32(rng.standard_normal(count) * 2.0 ** rng.integers(-30, 20, count))
        yield f"{count} narrowed", run_narrow(values, dtype, begin, way), narrowed(values, dtype)


def tiles_of_weights(name: str, way: Way) -> Iterator[Pair]:
    problem = FUSED["tiles of weights"][name]
    weights = weights_of(problem, np.random.default_rng(3))
    for product in (FPROP, DGRAD):
        yield product, run_tile_weights(weights, problem, product, way), tiled(weights, problem, product)


def in_16_bits(name: str | OpCase, word: str, way: Way) -> Iterator[Pair]:
    """Packed tiles sum in their own order; whole numbers have the same sums in every order."""
    case = CASES[name] if isinstance(name, str) else name
    for taken in taken_steps(case, word, way.precision, exact=way.precision == "bf16"):
        direct, converted = (taken.run(each, way) for each in (True, False))
        for role, want in converted.items():
            yield f"{taken.step.step}: {role}", direct[role], want
