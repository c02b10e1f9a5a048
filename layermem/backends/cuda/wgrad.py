"""Implicit GEMM: launches of conv_wgrad (cuda/conv.cuh), and the split of a weight gradient into parts.

The split is a function of the shape alone, and so the same on every GPU, under every budget and in every run: that of
least time by `cycles` on a nominal GPU (gemm_tiles.py), with the constants below, which are modelled too.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import NamedTuple

from layermem.backends.cuda.base import FLOAT
from layermem.backends.cuda.gemm_tiles import (
    DEPTH,
    ENGINES,
    FEW,
    WGRAD,
    Engine,
    Tile,
    cycles,
    group_channels,
    is_large,
    problem_struct,
    vector_width_of,
    windows,
)
from layermem.backends.cuda.launch import THREADS, Launch, ceil_div, divider, launch, vector_width
from layermem.ops import ConvProblem

MIN_WINDOWS = 256  # that one split of a weight gradient sums over
MAX_PARTS = 1024  # of a weight gradient whose images are cut, all groups together
SPLITS_IN_FLIGHT, MAX_SPLIT_LINES = 4, 64  # splits that a thread of sum_splits loads at once; threads across the splits
DRAM_BYTES = 2222  # in a cycle
ADD_CYCLES = 5000  # of the launch that adds parts
SLACK = 8  # time that fewer parts may cost: one part in so many
FP32_SHARE = 5  # a product in fp32 takes as long as five in tf32, and counts as much where both share a split


class Split(NamedTuple):
    """How a weight gradient is computed: `parts` partial sums over `images_each` images; or over one of `pieces` of a
    single image each, of whole stages."""

    images_each: int
    parts: int
    pieces: int = 1

    def windows_each(self, problem: ConvProblem) -> int:
        """Of a part."""
        if self.pieces > 1:
            return piece_windows(problem, self.pieces)
        return self.images_each * windows(problem)


def piece_windows(problem: ConvProblem, pieces: int) -> int:
    """Of so many pieces of an image, or of fewer."""
    return ceil_div(ceil_div(windows(problem), DEPTH), pieces) * DEPTH


@lru_cache(maxsize=4096)
def split_of(problem: ConvProblem) -> Split:
    """Of the splits whose products and additions take hardly more than the least time, in tf32 and in fp32, the one of
    fewest parts, which takes least memory."""
    most = max(1, min(problem.n, problem.positions // MIN_WINDOWS))
    pieces = min(windows(problem) // MIN_WINDOWS, MAX_PARTS // (problem.n * problem.groups))
    between = (_split(problem, parts) for parts in range(1, most + 1))
    within = (_split_images(problem, count) for count in range(2, pieces + 1))
    splits = dict.fromkeys([*between, *within])
    spent = {split: _split_cycles(problem, split) for split in splits}
    least = min(spent.values())
    return next(split for split in splits if spent[split] <= least + least // SLACK)


def _split(problem: ConvProblem, parts: int) -> Split:
    """Into so many parts or fewer, cut between images."""
    each = ceil_div(problem.n, parts)
    return Split(each, ceil_div(problem.n, each))


def _split_images(problem: ConvProblem, pieces: int) -> Split:
    """Every image into so many pieces or fewer."""
    count = ceil_div(windows(problem), piece_windows(problem, pieces))
    return Split(1, problem.n * count, count)


def _split_cycles(problem: ConvProblem, split: Split) -> int:
    """Of a product in tf32 and a share of one in fp32, each with its addition.  Reads from the L2 cache are counted as
    if tiles were full, which keeps parts few where they are not."""
    matrices, depth = wgrad_matrices(problem, split.parts), split.windows_each(problem)
    vector = vector_width_of(problem, *group_channels(problem))
    tf32, fp32 = (
        min(cycles(engine, tile, _full(tile, *matrices), depth) for tile in engine.own_tiles(WGRAD, vector))
        for engine in (ENGINES["tf32"], ENGINES["fp32"])
    )
    products = FP32_SHARE * tf32 + fp32
    if split.parts == 1:
        return products
    add = ADD_CYCLES + (2 * split.parts + 1) * problem.filter.nbytes // DRAM_BYTES
    return products + (FP32_SHARE + 1) * add


def _full(tile: Tile, rows: int, columns: int, count: int) -> tuple[int, int, int]:
    """Matrices of the same tiles, all of them full."""
    return ceil_div(rows, tile.m) * tile.m, ceil_div(columns, tile.n) * tile.n, count


def wgrad_matrices(problem: ConvProblem, parts: int) -> tuple[int, int, int]:
    """Rows, columns and how many there are."""
    channels, outputs = group_channels(problem)
    return outputs, prod(problem.kernel) * channels, problem.groups * parts


def conv_wgrad(
    engine: Engine,
    problem: ConvProblem,
    dw: int,
    maps: int,
    image: int,
    accumulate: bool,
    workspace: int,
    *,
    split: Split | None = None,
    maps_pitch: int = 0,
) -> Iterator[Launch]:
    """`split` and `maps_pitch` are given where `problem` is a band of a larger gradient and must sum in its order."""
    split = split or split_of(problem)
    one = split.parts == 1
    yield wgrad_splits(
        engine,
        problem,
        split,
        dw if one else workspace,
        maps,
        image,
        range(split.parts),
        images=problem.n,
        accumulate=accumulate and one,
        maps_pitch=maps_pitch,
    )
    if not one:
        yield sum_parts(problem, dw, workspace, split.parts, accumulate)


def wgrad_splits(
    engine: Engine,
    problem: ConvProblem,
    split: Split,
    dw: int,
    maps: int,
    image: int,
    splits: range,
    *,
    images: int,
    first: int = 0,
    begun: int = 0,
    left: int = 0,
    accumulate: bool = False,
    maps_pitch: int = 0,
) -> Launch:
    """The parts `splits` of a weight gradient, each behind the other from `dw` on.  `problem` has the images at hand:
    those from `first` on, of `images`.  The first part may have begun, and the last one may go on in later slices."""
    channels, outputs = group_channels(problem)
    matrices = wgrad_matrices(problem, len(splits))
    width = engine.vector_width(problem, channels, outputs, maps_pitch)
    if width == 1 and _takes_few(engine, problem, outputs, maps_pitch):
        engine, width = engine.of_few_channels, FEW
    depth = min(split.windows_each(problem), problem.n * windows(problem))
    return engine.launch(
        WGRAD,
        width,
        "ConvWgradArgs",
        matrices,
        depth,
        dw=dw,
        begun=begun,
        left=left,
        maps=maps,
        image=image,
        problem=problem_struct(problem, maps_pitch),
        by_window=divider(windows(problem)),
        by_columns=divider(problem.out_w),
        by_channels=divider(channels),
        by_kernel_w=divider(problem.kernel[1]),
        splits=len(splits),
        images_each=split.images_each,
        pieces=split.pieces,
        windows_each=split.windows_each(problem),
        first_split=splits.start,
        first_image=first,
        images_whole=images,
        accumulate=accumulate,
    )


def _takes_few(engine: Engine, problem: ConvProblem, outputs: int, maps_pitch: int) -> bool:
    """Whether runs of the maps are of four, of an image in fp32."""
    is_wide = not engine.storage or engine.wide_image
    return is_wide and not is_large(problem) and vector_width(outputs, maps_pitch or problem.k) == 4


def sum_parts(
    problem: ConvProblem, dw: int, parts: int, count: int, accumulate: bool, *, begun: int = 0, left: int = 0
) -> Launch:
    """dw = or += the sum `begun` of the parts before, if there is one, and of `count` parts, in their order; the part
    behind them to `left`, if that is given."""
    each = problem.filter.count
    v = vector_width(each, *(address // FLOAT for address in (dw, parts, begun, left)))
    lines = min(MAX_SPLIT_LINES, 1 << (ceil_div(count, SPLITS_IN_FLIGHT) - 1).bit_length())
    width = THREADS // lines
    return launch(
        "channel_sums",
        f"sum_splits_v{v}",
        "SplitsArgs",
        ceil_div(each, width * v),
        y=dw,
        begun=begun,
        parts=parts,
        left=left,
        count=each,
        splits=count,
        width=width,
        accumulate=accumulate,
    )


def conv_wgrad_workspace_bytes(problem: ConvProblem, parts: int = 0) -> int:
    """`parts` of its split are given where `problem` is a band of a larger gradient."""
    parts = parts or split_of(problem).parts
    return FLOAT * parts * problem.filter.count if parts > 1 else 0
