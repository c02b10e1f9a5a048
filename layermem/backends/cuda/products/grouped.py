"""Convolutions with a few channels per group (cuda/grouped.cu, direct_problems.is_grouped): launches, tiles of fprop
and dgrad, and parts of wgrad.  FFMA bounds them; groups of four channels are memory bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

from layermem.backends.cuda.base import FLOAT
from layermem.backends.cuda.products.direct import CHANNELS, WARP, WARPS, DirectWgrad, Size, cells, shape_struct
from layermem.backends.cuda.products.direct_problems import TAPS
from layermem.backends.cuda.products.gemm_tiles import SMS
from layermem.backends.cuda.products.implicit_gemm import NO_EPILOGUE, Epilogue
from layermem.backends.cuda.products.wgrad import ADD_CYCLES, DRAM_RATE, SLACK_DIVISOR
from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, divider, launch
from layermem.backends.struct_layout import StructValues
from layermem.ops import ConvProblem

MODULE = "grouped"
QUAD = 4  # channels of a thread
LANES = CHANNELS // QUAD  # threads across the channels of a block
MAX_STRIPS = THREADS // LANES
MAX_SHARED = 2**16  # limit of a block, which every GPU supports
RIGHT, CELLS = 7, {1: 7, 2: 4}  # outputs of a strip of fprop; by stride, cells of a strip of dgrad
WGRAD_RIGHT = {1: 7, 2: 4}  # by stride, outputs of a strip of wgrad
SM_SHARED, MAX_WARPS, FEW_WARPS = 233472, 16, 12  # per multiprocessor: bytes, warps at most, warps at least
STRIP_ISSUES, PIXEL_ISSUES, END_ISSUES = 1100, 25, 500  # of a thread: per strip and quad, per copy, constant

INPUTS = 2  # per thread of wgrad
WARP_BYTES = 2**14  # limit of shared memory of a warp of wgrad: blocks of four fit every GPU
SCHEDULERS = 4 * SMS  # each issues one instruction per cycle
STRIP_CYCLES = (1460, 2040, 2760)  # modelled, of a strip of wgrad with 1, 2, 3 warps on a scheduler


def group_channels(problem: ConvProblem) -> int:
    return problem.c // problem.groups


# -- fprop and dgrad ---------------------------------------------------------------------------------------------------


class StripTile(NamedTuple):
    """Strips of a block: rows and columns of strips, in each of `images` images."""

    rows: int
    columns: int
    images: int

    @property
    def threads(self) -> int:
        """Threads of a block, in whole warps."""
        return ceil_div(prod(self) * LANES, WARP) * WARP


class StripPatch(NamedTuple):
    """Pixels of x that strips read: the stride between strips, and the additional pixels of the last strip."""

    strides: Size
    overlap: Size

    def of(self, tile: StripTile) -> Size:
        rows, columns = (
            count * step + overlap for count, step, overlap in zip(tile[:2], self.strides, self.overlap, strict=True)
        )
        return rows, columns


def fprop(
    problem: ConvProblem, maps: int, image: int, filters: int, epilogue: Epilogue = NO_EPILOGUE, suffix: str = ""
) -> Launch:
    """`suffix` as in CudaCall, if image and maps are in 16 bits."""
    stride = problem.stride[0]
    strips = problem.out_h, ceil_div(problem.out_w, RIGHT)
    patch = StripPatch((stride, RIGHT * stride), (TAPS - stride, TAPS - stride))
    return _launch(f"fprop_s{stride}{suffix}", problem, strips, patch, maps, image, filters, epilogue)


def dgrad(
    problem: ConvProblem,
    image: int,
    maps: int,
    filters: int,
    bias: int = 0,
    accumulate: bool = False,
    *,
    bottom_mask: int = 0,
    suffix: str = "",
) -> Launch:
    """`bottom_mask`: bits of the image; elements with a cleared bit become zero; 0 keeps all."""
    stride = problem.stride[0]
    right, reach = CELLS[stride], (TAPS - 1) // stride
    rows, columns = (cells(size, pad, stride) for size, pad in zip((problem.h, problem.w), problem.pad, strict=True))
    strips, patch = (rows, ceil_div(columns, right)), StripPatch((1, right), (reach, reach))
    epilogue = Epilogue(bias, image if accumulate else 0)
    return _launch(f"dgrad_s{stride}{suffix}", problem, strips, patch, image, maps, filters, epilogue, bottom_mask)


def _launch(
    function: str,
    problem: ConvProblem,
    strips: Size,
    patch: StripPatch,
    y: int,
    x: int,
    filters: int,
    epilogue: Epilogue,
    bottom_mask: int = 0,
) -> Launch:
    each = group_channels(problem)
    tile = tile_of(strips, patch, each)
    down, right = (ceil_div(count, of_tile) for count, of_tile in zip(strips, tile[:2], strict=True))
    across, (patch_h, patch_w) = ceil_div(problem.c, CHANNELS), patch.of(tile)
    grid = across * right * down * ceil_div(problem.n, tile.images)
    return launch(
        MODULE,
        f"grouped_{function}",
        "GroupedArgs",
        grid,
        tile.threads,
        shared=shared_bytes(tile, patch, each),
        y=y,
        x=x,
        filter=filters,
        of=shape_struct(problem),
        by_across=divider(across),
        by_down=divider(down),
        by_right=divider(right),
        by_outputs=divider(each),
        by_tile=divider(tile.rows * tile.columns),
        by_columns=divider(tile.columns),
        by_patch_h=divider(patch_h),
        by_patch_w=divider(patch_w),
        rows=tile.rows,
        columns=tile.columns,
        images=tile.images,
        epilogue={**epilogue._asdict(), "bottom_mask": bottom_mask},
    )


@lru_cache(maxsize=4096)
def tile_of(strips: Size, patch: StripPatch, each: int) -> StripTile:
    """The tile with the fewest instructions per image.  It changes no bit."""
    rows, columns = strips
    tiles = (
        StripTile(down, right, max(1, MAX_STRIPS // (down * right)) if (down, right) == strips else 1)
        for down, right in product(range(1, min(rows, MAX_STRIPS) + 1), range(1, min(columns, MAX_STRIPS) + 1))
        if down * right <= MAX_STRIPS
    )
    fitting = (
        StripTile(tile.rows, tile.columns, images)
        for tile in tiles
        for images in range(1, tile.images + 1)
        if shared_bytes(StripTile(tile.rows, tile.columns, images), patch, each) <= MAX_SHARED
    )
    return min(fitting, key=lambda tile: _issues(tile, strips, patch, each))


def _issues(tile: StripTile, strips: Size, patch: StripPatch, each: int) -> float:
    """Instructions of all warps for an image; more if a multiprocessor has too few warps to issue one per cycle."""
    blocks = prod(ceil_div(count, of_tile) for count, of_tile in zip(strips, tile[:2], strict=True))
    warps = tile.threads // WARP
    copies = ceil_div(tile.images * prod(patch.of(tile)) * LANES, tile.threads)
    together = warps * min(MAX_WARPS // warps, SM_SHARED // shared_bytes(tile, patch, each))
    slower = max(1.0, FEW_WARPS / together)
    return slower * blocks * warps * (STRIP_ISSUES * each // QUAD + PIXEL_ISSUES * copies + END_ISSUES) / tile.images


def shared_bytes(tile: StripTile, patch: StripPatch, each: int) -> int:
    """Bytes of the filters, and of pixels in fp32; 16-bit pixels use part of these."""
    return FLOAT * CHANNELS * (TAPS * TAPS * each + tile.images * prod(patch.of(tile)))


# -- wgrad -------------------------------------------------------------------------------------------------------------


class BandParts(NamedTuple):
    """Bands of `rows_each` rows, in groups of `images_each` images."""

    rows_each: int
    images_each: int


class GroupedWgrad(DirectWgrad):
    """A warp sums a part of a run of channels in registers, strip after strip."""

    @property
    def quads(self) -> int:
        """Quads of a run of channels: a thread has one quad and two inputs."""
        return WARP * INPUTS // group_channels(self.problem)

    @property
    def across(self) -> int:
        return ceil_div(self.problem.k, self.quads * QUAD)

    @property
    def warps(self) -> int:
        return 1

    @property
    def strips_w(self) -> int:
        return ceil_div(self.problem.out_w, WGRAD_RIGHT[self.problem.stride[0]])

    @property
    def rows_each(self) -> int:
        return self._parts.rows_each

    @property
    def images_each(self) -> int:
        return self._parts.images_each

    @cached_property
    def _parts(self) -> BandParts:
        problem = self.problem
        return parts_of(self.images, problem.out_h, self.strips_w, self.across, problem.filter.nbytes)

    def _launch(self, grid: tuple[int, int, int], suffix: str, values: StructValues) -> Launch:
        rows = max(1, max(n for n in range(MAX_STRIPS) if self._warp_bytes(n) <= WARP_BYTES))
        rows = min(rows, self.rows_each)
        return launch(
            MODULE,
            f"grouped_wgrad_s{self.problem.stride[0]}{suffix}",
            "GroupedWgradArgs",
            grid,
            WARPS * WARP,
            shared=WARPS * self._warp_bytes(rows),
            wgrad=values,
            log_quads=self.quads.bit_length() - 1,
            rows=rows,
        )

    def _warp_bytes(self, rows: int) -> int:
        """Bytes of so many rows of a strip of the maps and of the pixels in their windows, in fp32."""
        stride = self.problem.stride[0]
        right = WGRAD_RIGHT[stride]
        pixels = ((rows - 1) * stride + TAPS) * ((right - 1) * stride + TAPS)
        return FLOAT * self.quads * QUAD * (pixels + rows * right)


@lru_cache(maxsize=4096)
def parts_of(images: int, rows: int, strips_w: int, across: int, nbytes: int) -> BandParts:
    """Choose the parts: among those near the least modelled time of sums and additions, the fewest, which need the
    least memory; `nbytes` is the size of the gradient."""
    spent = {
        parts: _cycles(parts, images, rows, strips_w, across, nbytes)
        for parts in dict.fromkeys([*_of_images(images, rows), *_of_rows(rows)])
    }
    least = min(spent.values())
    return next(parts for parts, cycles in spent.items() if cycles <= least + least // SLACK_DIVISOR)


def _of_images(images: int, rows: int) -> Iterator[BandParts]:
    """Yield parts of whole images, the fewest parts first."""
    for count in range(1, images + 1):
        yield BandParts(rows, ceil_div(images, count))


def _of_rows(rows: int) -> Iterator[BandParts]:
    for count in range(2, rows + 1):
        yield BandParts(ceil_div(rows, count), 1)


def _cycles(parts: BandParts, images: int, rows: int, strips_w: int, across: int, nbytes: int) -> int:
    count = ceil_div(images, parts.images_each) * ceil_div(rows, parts.rows_each)
    rounds, rest = divmod(across * count, len(STRIP_CYCLES) * SCHEDULERS)
    a_strip = rounds * STRIP_CYCLES[-1] + (STRIP_CYCLES[ceil_div(rest, SCHEDULERS) - 1] if rest else 0)
    added = ADD_CYCLES + 2 * count * nbytes // DRAM_RATE if count > 1 else 0
    return parts.images_each * parts.rows_each * strips_w * a_strip + added
