"""Launches that check products on a GPU (cuda/check.cu): operands of whole numbers, of which every kernel must make the
same bits, convolutions computed naively, and comparisons.

An inner product is the convolution of images of one pixel (inner_product.conv_problem).  `storage` is "" or the word of
NARROW of the type of image and maps; weights and their gradients are in fp32.  Where a product is too large to be
computed naively, `every` says which part of it is: of the runs of 32 elements one in so many.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import NamedTuple

import numpy as np

from layermem.backends.cuda.base import FLOAT, suffix
from layermem.backends.cuda.gemm_tiles import problem_struct
from layermem.backends.cuda.launch import THREADS, Launch, ceil_div, launch
from layermem.backends.cuda.wgrad import sum_parts
from layermem.ops import ConvProblem

RUN, WARP = 32, 32  # elements of a run; threads of a warp
MOST_BLOCKS = 264  # of a comparison
PART_WINDOWS = 4096  # that a thread of naive_wgrad adds, where there are images enough
FOUND = 2  # numbers that a warp of a comparison leaves


def draw_whole_numbers(y: int, count: int, seed: int, storage: str = "") -> Launch:
    """y [count] = numbers from -2 to 2, drawn by `seed` and place, the same in every type."""
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
    """Sums of some images each, which threads compute side by side."""
    return min(problem.n, ceil_div(problem.positions, PART_WINDOWS))


def _naive(
    function: str, problem: ConvProblem, places: dict[str, int], count: int, storage: str, every: int, *, parts: int = 1
) -> Launch:
    return launch(
        "check",
        f"{function}{suffix(storage)}",
        "NaiveArgs",
        (ceil_div(_looked_at(count, every), THREADS), parts),
        base=places,
        problem=problem_struct(problem),
        count=count,
        every=every,
    )


def every_of(problem: ConvProblem, pitch: int, most_macs: int) -> int:
    """`every` by which a product of the problem takes about that many multiplications and no more: one that meets all
    columns of what is written, whose rows are of `pitch` elements."""
    every = max(1, ceil_div(problem.macs, most_macs))
    while gcd(every, pitch) > 1:
        every += 1
    return every


def compare(found: int, got: int, wanted: int, count: int, itemsize: int, *, every: int = 1) -> Launch:
    """`found` has found_bytes() for differences() of two blobs of elements of 4 or 2 bytes."""
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
    """The number of elements of other bits, and the first of them; -1 if there is none."""

    number: int
    first: int


def differences(found: np.ndarray) -> Differences:
    """Of what a comparison left: uint32."""
    numbers, firsts = found.reshape(-1, FOUND).T
    number = int(numbers.sum(dtype=np.uint64))
    return Differences(number, int(firsts.min()) if number else -1)


def _compare_blocks(count: int, every: int) -> int:
    return min(MOST_BLOCKS, ceil_div(_looked_at(count, every), THREADS))


def _looked_at(count: int, every: int) -> int:
    """Elements of the runs that are looked at; the last may be beyond the blob."""
    return ceil_div(ceil_div(count, RUN), every) * RUN
