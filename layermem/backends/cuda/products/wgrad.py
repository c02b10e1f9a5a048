"""Implicit GEMM: launches of conv_wgrad (cuda/conv.cuh), and the split of a weight gradient into parts.

The split depends only on the shape, so it is the same on every GPU, under every budget and in every run: it is the
fastest by `cycles` on a nominal GPU (gemm_tiles.py), with the constants below, which are modelled too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import NamedTuple, TypeVar

from layermem.backends.cuda.base import FLOAT
from layermem.backends.cuda.products.gemm_tiles import (
    DEPTH,
    ENGINES,
    MIXED_WIDTH,
    WGRAD,
    GemmEngine,
    GemmTile,
    cycles,
    group_channels,
    is_large,
    problem_struct,
    vector_width_of,
    windows,
)
from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, divider, launch, vector_width
from layermem.backends.struct_layout import StructValues
from layermem.ops import BatchSlice, ConvProblem

MIN_WINDOWS = 256  # lower limit of a split of a weight gradient
MAX_PARTS = 1024  # limit over all groups if images are cut
SPLITS_IN_FLIGHT, MAX_SPLIT_LINES = 4, 64  # splits that a thread of sum_splits loads at once; threads across the splits
DRAM_RATE = 2222  # bytes per cycle
ADD_CYCLES = 5000  # of the launch that adds the parts
SLACK_DIVISOR = 8  # 1/SLACK_DIVISOR more time is accepted for fewer parts
TF32_WEIGHT = 5  # an fp32 product takes as long as five in tf32; with this weight both choose one split


class SplitK(NamedTuple):
    """The split of a weight gradient: `parts` partial sums, each over `images_each` images, or each over one of
    `pieces` of a single image, of whole stages."""

    images_each: int
    parts: int
    pieces: int = 1

    def windows_each(self, problem: ConvProblem) -> int:
        """Windows of a part."""
        if self.pieces > 1:
            return piece_windows(problem, self.pieces)
        return self.images_each * windows(problem)


class Frames(NamedTuple):
    """Image i of a weight gradient is frame i % `per_item` of item i / `per_item`, and the next frame of an item lies
    `image_step` images, or `maps_step` maps, behind it; with one per item, images lie one after the other."""

    per_item: int = 1
    image_step: int = 0
    maps_step: int = 0

    @property
    def struct(self) -> StructValues:
        """The fields of the struct Frames of cuda/conv_problem.cuh."""
        return {**self._asdict(), "per_item": divider(self.per_item)}


IN_ORDER = Frames()
Slice = TypeVar("Slice", bound="ImageSlice")


@dataclass(frozen=True)
class ImageSlice:
    """Images `first` .. `first` + problem.n - 1 of `images` in the whole batch."""

    problem: ConvProblem
    first: int
    images: int

    @classmethod
    def of(cls: type[Slice], problem: ConvProblem, batch_slice: BatchSlice | None) -> Slice:
        """The images of `problem`: those of `batch_slice`, one or more for each item; or of the whole batch."""
        if batch_slice is None:
            return cls(problem, 0, problem.n)
        each = problem.n // batch_slice.count
        return cls(problem, each * batch_slice.first, each * batch_slice.items)

    @property
    def end(self) -> int:
        """The index after the last image."""
        return self.first + self.problem.n

    @property
    def is_last(self) -> bool:
        return self.end == self.images


def piece_windows(problem: ConvProblem, pieces: int) -> int:
    """Windows of a piece if an image is cut into at most `pieces` pieces of whole stages."""
    return ceil_div(ceil_div(windows(problem), DEPTH), pieces) * DEPTH


@lru_cache(maxsize=4096)
def split_of(problem: ConvProblem) -> SplitK:
    """Choose the split: among those within 1/SLACK_DIVISOR of the least modelled time of products and additions in tf32
    and fp32, the one with the fewest parts, which needs the least memory."""
    most = max(1, min(problem.n, problem.positions // MIN_WINDOWS))
    pieces = min(windows(problem) // MIN_WINDOWS, MAX_PARTS // (problem.n * problem.groups))
    between = (_split(problem, parts) for parts in range(1, most + 1))
    within = (_split_images(problem, count) for count in range(2, pieces + 1))
    splits = dict.fromkeys([*between, *within])
    spent = {split: _split_cycles(problem, split) for split in splits}
    least = min(spent.values())
    return next(split for split in splits if spent[split] <= least + least // SLACK_DIVISOR)


def _split(problem: ConvProblem, parts: int) -> SplitK:
    """A split between images into at most `parts` parts."""
    each = ceil_div(problem.n, parts)
    return SplitK(each, ceil_div(problem.n, each))


def _split_images(problem: ConvProblem, pieces: int) -> SplitK:
    """A split of every image into at most `pieces` pieces."""
    count = ceil_div(windows(problem), piece_windows(problem, pieces))
    return SplitK(1, problem.n * count, count)


def _split_cycles(problem: ConvProblem, split: SplitK) -> int:
    """Modelled cycles of a product in tf32 and a share of one in fp32, each with its addition.  Reads from the L2 cache
    are counted as if tiles were full, which keeps the number of parts small if they are not."""
    matrices, depth = wgrad_matrices(problem, split.parts), split.windows_each(problem)
    vector = vector_width_of(problem, *group_channels(problem))
    tf32, fp32 = (
        min(cycles(engine, tile, _full(tile, *matrices), depth) for tile in engine.own_tiles(WGRAD, vector))
        for engine in (ENGINES["tf32"], ENGINES["fp32"])
    )
    products = TF32_WEIGHT * tf32 + fp32
    if split.parts == 1:
        return products
    add = ADD_CYCLES + (2 * split.parts + 1) * problem.filter.nbytes // DRAM_RATE
    return products + (TF32_WEIGHT + 1) * add


def _full(tile: GemmTile, rows: int, columns: int, count: int) -> tuple[int, int, int]:
    """Matrices with the same tiles, all of them full."""
    return ceil_div(rows, tile.m) * tile.m, ceil_div(columns, tile.n) * tile.n, count


def wgrad_matrices(problem: ConvProblem, parts: int) -> tuple[int, int, int]:
    """Rows, columns and number of matrices."""
    channels, outputs = group_channels(problem)
    return outputs, prod(problem.kernel) * channels, problem.groups * parts


def conv_wgrad(
    engine: GemmEngine,
    problem: ConvProblem,
    dw: int,
    maps: int,
    image: int,
    accumulate: bool,
    workspace: int,
    *,
    split: SplitK | None = None,
    maps_pitch: int = 0,
    frames: Frames = IN_ORDER,
) -> Iterator[Launch]:
    """`split` and `maps_pitch` are given if `problem` is a band of a larger gradient, to keep its order of sums."""
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
        frames=frames,
    )
    if not one:
        yield sum_parts(problem, dw, workspace, split.parts, accumulate)


def wgrad_splits(
    engine: GemmEngine,
    problem: ConvProblem,
    split: SplitK,
    dw: int,
    maps: int,
    image: int,
    splits: range,
    *,
    images: int,
    first: int = 0,
    open_in: int = 0,
    open_out: int = 0,
    accumulate: bool = False,
    maps_pitch: int = 0,
    frames: Frames = IN_ORDER,
) -> Launch:
    """The parts `splits` of a weight gradient, consecutive from `dw` on.  `problem` has the images from `first` on, of
    `images` in total.  An earlier slice may have left the first part open, its sums at
    `open_in`, and later slices may continue the last one, whose sums go to `open_out`."""
    channels, outputs = group_channels(problem)
    matrices = wgrad_matrices(problem, len(splits))
    width = engine.vector_width(problem, channels, outputs, maps_pitch)
    if width == 1 and _takes_mixed_width(engine, problem, outputs, maps_pitch):
        engine, width = engine.with_mixed_width, MIXED_WIDTH
    depth = min(split.windows_each(problem), problem.n * windows(problem))
    return engine.launch(
        WGRAD,
        width,
        "ConvWgradArgs",
        matrices,
        depth,
        dw=dw,
        open_in=open_in,
        open_out=open_out,
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
        frames=frames.struct,
    )


def _takes_mixed_width(engine: GemmEngine, problem: ConvProblem, outputs: int, maps_pitch: int) -> bool:
    """Whether only the maps, not the fp32 image, allow accesses of four elements."""
    is_wide = not engine.storage or engine.wide_image
    return is_wide and not is_large(problem) and vector_width(outputs, maps_pitch or problem.k) == 4


def sum_parts(
    problem: ConvProblem, dw: int, parts: int, count: int, accumulate: bool, *, sum_before: int = 0, open_out: int = 0
) -> Launch:
    """dw = or += `sum_before`, the sum of earlier parts, if there is one, plus `count` parts in order; the part after
    these goes to `open_out`, if that is given."""
    each = problem.filter.count
    v = vector_width(each, *(address // FLOAT for address in (dw, parts, sum_before, open_out)))
    lines = min(MAX_SPLIT_LINES, 1 << (ceil_div(count, SPLITS_IN_FLIGHT) - 1).bit_length())
    width = THREADS // lines
    return launch(
        "channel_sums",
        f"sum_splits_v{v}",
        "SplitsArgs",
        ceil_div(each, width * v),
        y=dw,
        sum_before=sum_before,
        parts=parts,
        open_out=open_out,
        count=each,
        splits=count,
        width=width,
        accumulate=accumulate,
    )


def conv_wgrad_workspace_bytes(problem: ConvProblem, parts: int = 0) -> int:
    """Bytes of the workspace; `parts` of its split is given if `problem` is a band of a larger gradient."""
    parts = parts or split_of(problem).parts
    return FLOAT * parts * problem.filter.count if parts > 1 else 0
