"""Launches that check products on a GPU (cuda/check.cu): integer operands, for which every kernel must compute the same
bits, naive convolutions, and comparisons.

An inner product is the convolution of images of one pixel (inner_product.conv_problem).  `storage` is "" or the NARROW
name of the type of image and maps; weights and their gradients are in fp32.  If a product is too large for a naive
computation, one of `every` runs of 32 elements is computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import NamedTuple

import numpy as np

from layermem.backends.cuda.base import FLOAT, suffix
from layermem.backends.cuda.products.gemm_tiles import problem_struct
from layermem.backends.cuda.products.wgrad import sum_parts
from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, launch
from layermem.ops import ConvProblem

RUN, WARP = 32, 32  # elements of a run; threads of a warp
MAX_BLOCKS = 264  # limit of a comparison
PART_WINDOWS = 4096  # summed by a thread of naive_wgrad, if there are enough images
FOUND = 2  # numbers that a warp of a comparison writes


def draw_whole_numbers(y: int, count: int, seed: int, storage: str = "") -> Launch:
    """y [count] = numbers from -2 to 2, determined by `seed` and index, the same in every type."""
    function = f"draw_whole_numbers{suffix(storage)}"
    return launch("check", function, "WholeNumbersArgs", ceil_div(count, THREADS), y=y, count=count, seed=seed)


def naive_fprop(
    problem: ConvProblem, maps: int, image: int, weights: int, *, storage: str = "", every: int = 1
) -> Launch:
    places = {"maps": maps, "image": image, "filter": weights}
    return _naive("naive_fprop", problem, places, problem.maps.count, storage, every)


def naive_dgrad(
    problem: ConvProblem, image: int, maps: int, weights: int, *, storage: str = "", every: int = 1
) -> Launch:
    places = {"maps": maps, "image": image, "filter": weights}
    return _naive("naive_dgrad", problem, places, problem.image.count, storage, every)


def naive_wgrad(
    problem: ConvProblem, dw: int, maps: int, image: int, workspace: int, *, storage: str = "", every: int = 1
) -> Iterator[Launch]:
    """`workspace` has naive_wgrad_workspace_bytes()."""
    parts = _parts(problem)
    places = {"maps": maps, "image": image, "filter": workspace if parts > 1 else dw}
    yield _naive("naive_wgrad", problem, places, problem.filter.count, storage, every, parts=parts)
    if parts > 1:
        yield sum_parts(problem, dw, workspace, parts, False)


def naive_wgrad_workspace_bytes(problem: ConvProblem) -> int:
    parts = _parts(problem)
    return FLOAT * parts * problem.filter.count if parts > 1 else 0


def _parts(problem: ConvProblem) -> int:
    """The number of partial sums over images, which different threads compute."""
    return min(problem.n, ceil_div(problem.positions, PART_WINDOWS))


def _naive(
    function: str, problem: ConvProblem, places: dict[str, int], count: int, storage: str, every: int, *, parts: int = 1
) -> Launch:
    return launch(
        "check",
        f"{function}{suffix(storage)}",
        "NaiveArgs",
        (ceil_div(_compared(count, every), THREADS), parts),
        base=places,
        problem=problem_struct(problem),
        count=count,
        every=every,
    )


def every_of(problem: ConvProblem, pitch: int, most_macs: int) -> int:
    """The smallest `every` with which a product computes at most about `most_macs` multiplications and reaches all
    columns of its result, whose rows have `pitch` elements."""
    every = max(1, ceil_div(problem.macs, most_macs))
    while gcd(every, pitch) > 1:
        every += 1
    return every


def compare(found: int, got: int, wanted: int, count: int, itemsize: int, *, every: int = 1) -> Launch:
    """Compare two blobs with elements of `itemsize` (4 or 2) bytes; `found` has found_bytes() for differences()."""
    return launch(
        "check",
        f"compare_{8 * itemsize}",
        "CompareArgs",
        _compare_blocks(count, every),
        found=found,
        got=got,
        wanted=wanted,
        count=count,
        every=every,
    )


def found_bytes(count: int, every: int = 1) -> int:
    return _compare_blocks(count, every) * THREADS // WARP * FOUND * np.dtype(np.uint32).itemsize


class Differences(NamedTuple):
    """The number of elements with different bits, and the index of the first; -1 if there is none."""

    number: int
    first: int


def differences(found: np.ndarray) -> Differences:
    """The result of a comparison, from the uint32 numbers that it wrote."""
    numbers, firsts = found.reshape(-1, FOUND).T
    number = int(numbers.sum(dtype=np.uint64))
    return Differences(number, int(firsts.min()) if number else -1)


def _compare_blocks(count: int, every: int) -> int:
    return min(MAX_BLOCKS, ceil_div(_compared(count, every), THREADS))


def _compared(count: int, every: int) -> int:
    """Elements of the compared runs; the last run may end beyond the blob."""
    return ceil_div(ceil_div(count, RUN), every) * RUN
