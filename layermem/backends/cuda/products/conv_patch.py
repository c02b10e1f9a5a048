"""The patch of an image that a tile of windows reads (cuda/conv_patch.cuh): its bytes, and the problems that use it."""

from __future__ import annotations

from functools import lru_cache
from math import prod

from layermem.backends.cuda.support.families import is_on
from layermem.backends.cuda.support.launch import ceil_div
from layermem.ops import ConvProblem

FLOAT, CHUNK, DEPTH = 4, 4, 32  # bytes; floats per copy; elements of k in a stage
STAGES = 2  # number of stages of B
TAP_PLACE = 8  # bytes of an entry of the table of taps
MAX_SHARED = 113 * 1024  # limit of a block, so that a multiprocessor of compute capability 9.0 runs two
MAX_CHANNELS = 8  # limit of an image


def pays(problem: ConvProblem, tile_m: int, tile_n: int) -> bool:
    """Whether an image of few channels has a patch that needs at most half as many copies (of 16 bytes) as its windows
    (of 4 bytes), and is small enough for two blocks per multiprocessor."""
    if problem.c > MAX_CHANNELS or prod(problem.kernel) == 1 or not is_on("patch"):
        return False
    copies = ceil_div(patch_floats(problem, tile_m), CHUNK)
    return 2 * copies <= tile_m * _depth(problem) and shared_bytes(problem, tile_m, tile_n) <= MAX_SHARED


def shared_bytes(problem: ConvProblem, tile_m: int, tile_n: int) -> int:
    """Dynamic shared memory of a block: stages of B, the table of taps, the patch."""
    entries = ceil_div(_depth(problem), DEPTH) * DEPTH + DEPTH
    return FLOAT * (STAGES * tile_n * DEPTH + patch_floats(problem, tile_m)) + TAP_PLACE * entries


def _depth(problem: ConvProblem) -> int:
    return prod(problem.kernel) * problem.c // problem.groups


@lru_cache(maxsize=1024)
def patch_floats(problem: ConvProblem, tile_m: int) -> int:
    """Floats of the largest patch, over tiles that begin with any row of an image."""
    lines = ceil_div(tile_m - 1, problem.out_w) + 1
    return max(
        sum(_segment_floats(problem, each) for each in _lines_by_image(problem.out_h, first, lines))
        for first in range(problem.out_h)
    )


def _lines_by_image(of_image: int, first: int, lines: int) -> list[int]:
    """Rows of windows of each image, out of `lines` in total from row `first` of the first image on."""
    found = [min(of_image - first, lines)]
    while sum(found) < lines:
        found.append(min(of_image, lines - sum(found)))
    return found


def _segment_floats(problem: ConvProblem, lines: int) -> int:
    """Floats of the rows of an image that `lines` rows of windows read, as in Patch::size."""
    (kernel_h, kernel_w), (stride_h, stride_w) = problem.kernel, problem.stride
    (_, pad_w), (dilation_h, dilation_w) = problem.pad, problem.dilation
    right = (problem.out_w - 1) * stride_w + (kernel_w - 1) * dilation_w + 1 - pad_w - problem.w
    gap = _whole_chunks(max(pad_w * problem.c, right * problem.c, 1))
    rows = (lines - 1) * stride_h + (kernel_h - 1) * dilation_h + 1
    return gap + _whole_chunks(rows * (gap + problem.w * problem.c) + CHUNK - 1)


def _whole_chunks(floats: int) -> int:
    return ceil_div(floats, CHUNK) * CHUNK
