"""Tiles of implicit GEMM (cuda/conv.cuh): the engine of each precision, the modelled time of its tiles, and their
choice.

The tile depends on shape, precision and GPU, and changes no bit: it is the fastest by `cycles` on the nominal GPU of
the architecture (nominal_gpus.py).  The constants of that model (paces, L2_RATE, BLOCK_CYCLES) were derived from the
machine code of sm_90 and are not measured; the step `tiles` of tools/gpu_check.py measures every tile on a GPU and
compares it with the chosen one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf, prod
from types import MappingProxyType
from typing import NamedTuple

from layermem.backends.cuda.base import FLOAT, CudaCall
from layermem.backends.cuda.products import conv_patch
from layermem.backends.cuda.products.nominal_gpus import H200, NominalGpu, nominal_gpu
from layermem.backends.cuda.support.families import is_on
from layermem.backends.cuda.support.launch import Launch, ceil_div, is_grid, launch, vector_width
from layermem.backends.struct_layout import StructValue, StructValues
from layermem.ops import ConvProblem

DEPTH = 32  # elements of k in a stage of fp32 tiles, as in cuda/implicit_gemm.cuh; slices end at whole stages
COLUMN_NUMBERS, SUMS, GROUP_ROWS = 4, 2, 32  # per column: operands of its sums, and sums; rows of a group
TABLE_BYTES = 16  # static shared memory per row of a tile of conv_fprop
VECTOR = 4  # floats per access, if alignment permits
PACKED = 8  # 16-bit elements per access of a packed tile
MIXED_WIDTH = 41  # code for vector widths of four for the maps and one for the image
MAX_ROUNDED_WEIGHTS = 3 * 2**22  # largest number of weights that a separate launch rounds
PAIRED_PIXELS = 2**14  # limit of a padded side of the images for kernels with 16-byte accesses

# The nominal GPU of splits, which are the same on every GPU: an H200 at 1.755 GHz.
SMS = H200.multiprocessors
ROW_BYTES, L2_RATE = 4 * DEPTH, H200.l2_rate  # bytes of a row of a stage; bytes of the L2 cache per cycle
BLOCK_CYCLES = 2, 5  # cycles of a block outside of its stages: 2 for 5 elements of its tile
MAX_IDLE = 1.5  # limit of columns per output in a patch's fp32 tiles; more products cost more than copies save


FPROP, DGRAD, WGRAD = "conv_fprop", "conv_dgrad", "conv_wgrad"
DGRAD_SUMS_KERNEL = "conv_dgrad_sums"
PRODUCTS = FPROP, DGRAD, WGRAD


class GemmTile(NamedTuple):
    m: int
    n: int
    threads: int  # in fp32; 0 for tiles of tensor cores with several elements per access
    mma_threads: int = 128  # on tensor cores
    two_sum_threads: int = 128  # on tensor cores in fp32x3, with two sums per element
    products: tuple[str, ...] = PRODUCTS  # few channels mean many rows, few outputs many columns

    @property
    def name(self) -> str:
        return f"{self.m}x{self.n}"


COMMON_TILES = (  # for all precisions
    GemmTile(128, 128, 256, 128, 256),
    GemmTile(128, 64, 128),
    GemmTile(64, 64, 64),
    GemmTile(128, 32, 128),
)
TALL_TILE = GemmTile(512, 64, 0, 256, products=(FPROP, DGRAD))
WIDE_TILES = (
    GemmTile(128, 256, 0, 256, products=(WGRAD,)),
    GemmTile(128, 192, 0, 384, products=(WGRAD,)),
    GemmTile(64, 192, 0, 192, products=(WGRAD,)),
)
LARGE_TILE = GemmTile(256, 128, 0, 256)
ALL_TILES = (TALL_TILE, LARGE_TILE, *WIDE_TILES, *COMMON_TILES, GemmTile(64, 32, 64, 64, 64))
TILES = ALL_TILES  # tiles that are tried, if an engine has them
PATCH_TILES = (GemmTile(128, 96, 128), GemmTile(128, 64, 128))  # for images of few channels


def sums_bytes(tile: GemmTile) -> int:
    """Dynamic shared memory that the epilogue of conv_dgrad_sums needs, as in cuda/conv_sums.cuh."""
    groups = tile.m // GROUP_ROWS
    return FLOAT * tile.n * (tile.m + COLUMN_NUMBERS + SUMS * groups)


Paces = Mapping[str, Sequence[int]]  # by tile: cycles of a stage with 1, 2, .. blocks on a multiprocessor


class GemmEngine(NamedTuple):
    """The three kernels in one precision, the stages of their shared-memory ring, and the modelled time of a stage, for
    the first of its products on blobs in fp32, or in 16 bits if operands are.  A change of these paces changes bits,
    because the split follows from them.

    paces       paces of its tiles
    storage     "" or the NARROW name of the type of image and maps; weights and their gradients are in fp32
    wide_image  whether the image is in fp32 nevertheless, like the input data of a net
    depth       elements of k in a stage
    vector      elements of each access, or MIXED_WIDTH; 0: chosen by the shape
    by_warpgroups   products that the engine of one architecture computes instead (warpgroup.py)
    multiprocessors   their number on the GPU: that engine runs one or two blocks on each at the same time
    gpu         the GPU that tiles are chosen for and that `paces` hold for
    """

    precision: str
    stages: int
    paces: Paces
    storage: str = ""
    wide_image: bool = False
    depth: int = DEPTH
    vector: int = 0
    by_warpgroups: frozenset[str] = frozenset()
    multiprocessors: int = SMS
    gpu: NominalGpu = H200

    def on_gpu(self, gpu: NominalGpu) -> GemmEngine:
        """The engine whose tiles are chosen for `gpu`."""
        return self._replace(paces=self._paces_on(gpu, self.paces), gpu=gpu)

    def _paces_on(self, gpu: NominalGpu, paces: Paces) -> Paces:
        if gpu == H200:
            return paces
        tiles = [tile for tile in ALL_TILES if tile.name in paces]
        return {
            tile.name: gpu.paces(
                paces[tile.name],
                self.shared_bytes(tile) + TABLE_BYTES * tile.m,
                tile.m * tile.n * self.depth,
                self.precision,
            )
            for tile in tiles
        }

    @property
    def tiles(self) -> tuple[GemmTile, ...]:
        own = tuple(tile for tile in ALL_TILES if tile.name in self.paces)
        return tuple(tile for tile in own if tile in TILES) or own

    def own_tiles(self, product: str, vector: int) -> tuple[GemmTile, ...]:
        """All tiles of `product` for accesses of `vector` elements."""
        own = (tile for tile in ALL_TILES if tile.name in self.paces and product in tile.products)
        return tuple(tile for tile in own if vector > 1 or tile.threads)

    def tiles_of(self, product: str, vector: int) -> tuple[GemmTile, ...]:
        """The tiles of own_tiles() that are in TILES; all of them if there are none."""
        own = self.own_tiles(product, vector)
        return tuple(tile for tile in own if tile in TILES) or own

    @property
    def is_packed(self) -> bool:
        """Whether operands are copied in 16 bits, which requires rounded weights."""
        return self.depth > DEPTH

    @property
    def module(self) -> str:
        """The module of the kernels, which are compiled for one type of blobs."""
        of_precision = "" if self.precision == "fp32" else f"_{self.precision}"
        return f"convolution{of_precision}" + (f"_on_{self.storage}" if self.storage else "")

    def on(self, storage: str, *, wide_image: bool = False) -> GemmEngine:
        """The engine for blobs in 16 bits that are widened; an fp32 image is copied element by element."""
        paces = {tile.name: self.paces[tile.name] for tile in COMMON_TILES}
        return self._replace(paces=paces, storage=storage, wide_image=wide_image, vector=1 if wide_image else 0)

    @property
    def on_fp32(self) -> GemmEngine:
        """The engine for blobs in fp32: it computes the same bits from widened blobs."""
        return ENGINES[self.precision].on_gpu(self.gpu)

    @property
    def with_mixed_width(self) -> GemmEngine:
        """Engine for wgrad if only the maps allow accesses of four elements."""
        return self._replace(paces=self._paces_on(self.gpu, PACES_OF_MIXED_WIDTH[self.precision]), vector=MIXED_WIDTH)

    def vector_width(self, problem: ConvProblem, *counts: int) -> int:
        """Elements per access for runs of channels or outputs with these lengths."""
        return self.vector or vector_width_of(problem, *counts)

    def launch(
        self,
        product: str,
        vector: int,
        args: str,
        matrices: tuple[int, int, int],
        depth: int,
        *,
        rows: int = 1,
        **values: StructValue,
    ) -> Launch:
        """Launch `product`, one of PRODUCTS or DGRAD_SUMS_KERNEL, for `matrices` (rows, columns, number of matrices)
        over k in [0, depth), with tiles of a multiple of `rows` rows.

        No tile changes a bit, so tiles that need less shared memory are alternatives: each is the fastest of those that
        need less than the one before."""
        tiles = by_time(self, DGRAD if product == DGRAD_SUMS_KERNEL else product, matrices, depth, vector, rows)
        first, *others = (self._blocks(product, vector, tile, matrices) for tile in with_less_memory(self, tiles))
        name, grid, block, shared = first
        chosen = launch(self.module, name, args, grid, block, shared=shared, base=values)
        alternatives = (
            replace(chosen, function=name, grid=grid, block=block, shared=shared)
            for name, grid, block, shared in others
            if is_grid(grid)
        )
        return replace(chosen, alternatives=tuple(alternatives))

    def of_patch(self, plain: Launch, problem: ConvProblem, matrices: tuple[int, int, int]) -> Launch:
        """Launch conv_fprop with a patch of the image (cuda/conv_patch.cuh) if that pays; `plain`, which has the same
        arguments and bits, is then an alternative, and otherwise the result."""
        if self.storage and not self.wide_image:
            return plain
        tiles = PATCH_TILES[1:] if self.precision == "fp32x3" else PATCH_TILES  # two sums leave no registers for 96
        tile = min(tiles, key=lambda each: (_columns(matrices, each), -each.n))
        if not conv_patch.pays(problem, tile.m, tile.n):
            return plain
        if self.precision == "fp32" and _columns(matrices, tile) > MAX_IDLE * matrices[1]:
            return plain
        blobs = "_data" if self.wide_image else ""
        return replace(
            plain,
            function=f"conv_fprop{blobs}_patch_{tile.name}_v1",
            grid=grid_of(tile, *matrices),
            block=tile.threads,
            shared=conv_patch.shared_bytes(problem, tile.m, tile.n),
            alternatives=(plain, *plain.alternatives),
        )

    def _blocks(
        self, product: str, vector: int, tile: GemmTile, matrices: tuple[int, int, int]
    ) -> tuple[str, tuple[int, int, int], int, int]:
        """Name of the kernel, grid, threads and dynamic shared memory of a block."""
        threads = {"fp32": tile.threads, "fp32x3": tile.two_sum_threads}.get(self.precision, tile.mma_threads)
        blobs = "_data" if self.wide_image else ""
        shared = self.shared_bytes(tile)
        if product == DGRAD_SUMS_KERNEL:
            shared = max(shared, sums_bytes(tile))
        return f"{product}{blobs}_{tile.name}_v{vector}", grid_of(tile, *matrices), threads, shared

    def shared_bytes(self, tile: GemmTile) -> int:
        """Bytes of dynamic shared memory of a block: the ring of stages."""
        return self.stages * (tile.m + tile.n) * DEPTH * FLOAT


TF32_PACES: Paces = MappingProxyType(
    {
        "512x64": (2450,),
        "256x128": (1870,),
        "128x256": (2210,),
        "128x192": (1650,),
        "64x192": (1290, 1810),
        "128x128": (1330, 1980),
        "128x64": (920, 1330, 1830),
        "64x64": (650, 990, 1190, 1580),
        "128x32": (710, 960, 1270),
    }
)
PACKED_BF16_PACES: Paces = MappingProxyType(
    {
        "256x128": (1900,),
        "128x256": (1810,),
        "128x192": (1560,),
        "64x192": (1150, 1680),
        "128x128": (1270, 1890),
        "128x64": (930, 1290, 1820),
        "64x64": (620, 860, 1200, 1540),
    }
)
BF16_PACES: Paces = MappingProxyType(
    {
        "512x64": (2370,),
        "256x128": (1780,),
        "128x256": (1500,),
        "128x192": (1470,),
        "64x192": (1200, 1700),
        "128x128": (1150, 1660),
        "128x64": (880, 1360, 1850),
        "64x64": (610, 820, 1220, 1630),
        "128x32": (660, 950, 1250),
    }
)
FP32X3_PACES: Paces = MappingProxyType(
    {"128x128": (2910,), "128x64": (1860, 2990), "64x64": (1160, 1710, 2380), "128x32": (1280, 1900, 2470)}
)
FP32_PACES: Paces = MappingProxyType(
    {
        "128x128": (7620, 11300),
        "128x64": (4340, 7270, 9730),
        "64x64": (4380, 4380, 7360, 7360, 7360, 9820),
        "128x32": (2820, 4430, 5980, 7600),
    }
)

PACES_OF_MIXED_WIDTH: Mapping[str, Paces] = MappingProxyType(
    {  # for conv_wgrad
        "fp32": {"64x64": (7330, 7330, 8330, 8330, 8330, 10750), "64x32": (3780, 3780, 4690, 4690, 4690, 6610)},
        "fp32x3": {"64x64": (1150, 1790, 2520), "64x32": (1290, 1290, 1950, 1950, 1950, 2560)},
        "tf32": {"64x64": (750, 1020, 1360, 1740), "64x32": (770, 770, 1140, 1140, 1140, 1530)},
        "bf16": {"64x64": (690, 940, 1260), "64x32": (760, 760, 1140, 1140, 1140, 1510)},
    }
)

ENGINES = {
    "fp32": GemmEngine("fp32", 2, FP32_PACES),
    "fp32x3": GemmEngine("fp32x3", 3, FP32X3_PACES),
    "tf32": GemmEngine("tf32", 3, TF32_PACES),
    "bf16": GemmEngine("bf16", 3, BF16_PACES),
}


WIDENING = ("fp32", "tf32")  # precisions whose products widen 16-bit blobs
PACKED_BF16 = GemmEngine("bf16", 3, PACKED_BF16_PACES, "bf16", depth=2 * DEPTH, vector=PACKED)
PACES_OF_DATA: Paces = MappingProxyType({name: BF16_PACES[name] for name in ("128x128", "128x64", "64x64")})
BF16_OF_DATA = GemmEngine("bf16", 3, PACES_OF_DATA, "bf16", wide_image=True, vector=1)


def engine_of(call: CudaCall, image: str) -> GemmEngine:
    """The engine for a bound op; `image` is the role of the image."""
    engine = engine_for(call.precision, call.storage, wide_image=image not in call.narrow)
    return engine.on_gpu(nominal_gpu(call.capability, call.multiprocessors))


def engine_of_fp32(call: CudaCall) -> GemmEngine:
    """The engine for a bound op whose blobs are all in fp32."""
    return ENGINES[call.precision].on_gpu(nominal_gpu(call.capability, call.multiprocessors))


def engine_for(precision: str, storage: str, *, wide_image: bool = False) -> GemmEngine:
    """The engine of products whose blobs, or all blobs but the image, are in this storage: "" or a name in NARROW."""
    engine = ENGINES[precision]
    if not storage:
        return engine
    if precision in WIDENING:
        return engine.on(storage, wide_image=wide_image)
    return BF16_OF_DATA if wide_image else PACKED_BF16


def takes_narrow(precision: str, problem: ConvProblem, step: str, word: str, *, wide_image: bool) -> bool:
    """Whether products of this precision take blobs of the type `word` directly.  For one precision and type this
    depends only on the problem: packed kernels sum in another order than fp32 kernels."""
    if precision in WIDENING:
        return True
    is_taken = (precision, word) == ("bf16", "bf16") and (wide_image or _is_packable(problem, step))
    return is_taken and is_on("packed")


def _is_packable(problem: ConvProblem, step: str) -> bool:
    """Whether copies have 16 bytes; and whether weights, if they are operands, are few enough to be rounded first:
    rounding more weights would move more bytes than widening the blobs."""
    reads_weights = step in ("forward", "dgrad")
    is_divided = not any(count % PACKED for count in group_channels(problem))
    return is_divided and not is_large(problem) and (not reads_weights or problem.filter.count <= MAX_ROUNDED_WEIGHTS)


def group_channels(problem: ConvProblem) -> tuple[int, int]:
    """(input channels, output channels) of one group."""
    return problem.c // problem.groups, problem.k // problem.groups


def problem_struct(problem: ConvProblem, maps_pitch: int = 0) -> StructValues:
    """The fields of the struct ConvProblem of cuda/conv.cuh; `maps_pitch` is 0 unless the maps are a band."""
    channels, outputs = group_channels(problem)
    (kernel_h, kernel_w), (stride_h, stride_w) = problem.kernel, problem.stride
    (pad_h, pad_w), (dilation_h, dilation_w) = problem.pad, problem.dilation
    return {
        "images": problem.n, "height": problem.h, "width": problem.w, "channels": channels, "image_pitch": problem.c,
        "maps_h": problem.out_h, "maps_w": problem.out_w, "outputs": outputs, "maps_pitch": maps_pitch or problem.k,
        "kernel_h": kernel_h, "kernel_w": kernel_w, "stride_h": stride_h, "stride_w": stride_w, "pad_h": pad_h,
        "pad_w": pad_w, "dilation_h": dilation_h, "dilation_w": dilation_w,
    }  # fmt: skip


def windows(problem: ConvProblem) -> int:
    """The number of windows of one image."""
    return problem.out_h * problem.out_w


def vector_width_of(problem: ConvProblem, *counts: int) -> int:
    """Floats per access for runs of channels or outputs with these lengths."""
    return 1 if is_large(problem) else vector_width(*counts)


def is_large(problem: ConvProblem) -> bool:
    sides = zip((problem.h, problem.w), problem.pad, strict=True)
    return any(side + 2 * pad >= PAIRED_PIXELS for side, pad in sides)


def cycles(engine: GemmEngine, tile: GemmTile, matrices: tuple[int, int, int], depth: int, l2_rate: int = 0) -> int:
    """Modelled cycles of a launch that computes `matrices` (rows, columns, number of matrices) over k in [0, depth):
    the maximum of the waves of its blocks, the last one partial, and of its reads from the L2 cache."""
    blocks, stages, paces = prod(grid_of(tile, *matrices)), ceil_div(depth, engine.depth), engine.paces[tile.name]
    ends = tile.m * tile.n * BLOCK_CYCLES[0] // BLOCK_CYCLES[1]
    multiprocessors, l2_rate = engine.gpu.multiprocessors, l2_rate or engine.gpu.l2_rate
    waves, rest = divmod(blocks, len(paces) * multiprocessors)
    pipeline = waves * (stages * paces[-1] + ends)
    if rest:
        pipeline += stages * paces[ceil_div(rest, multiprocessors) - 1] + ends
    rows, columns, _ = matrices
    return max(pipeline, blocks * stages * (min(tile.m, rows) + min(tile.n, columns)) * ROW_BYTES // l2_rate)


def by_time(
    engine: GemmEngine, product: str, matrices: tuple[int, int, int], depth: int, vector: int = PACKED, rows: int = 1
) -> list[GemmTile]:
    """Tiles for accesses of `vector` elements with a multiple of `rows` rows, the fastest first."""
    tiles = [tile for tile in engine.tiles_of(product, vector) if tile.m % rows == 0]
    return sorted(tiles, key=lambda tile: cycles(engine, tile, matrices, depth))


def with_less_memory(engine: GemmEngine, tiles: Sequence[GemmTile]) -> Iterator[GemmTile]:
    """The first tile, and each later one that needs less shared memory than all before it."""
    least = inf
    for tile in tiles:
        if engine.shared_bytes(tile) < least:
            least = engine.shared_bytes(tile)
            yield tile


def grid_of(tile: GemmTile, m: int, n: int, repeat: int) -> tuple[int, int, int]:
    """The grid: tiles of one matrix, those along n first, and the number of matrices."""
    return ceil_div(m, tile.m) * ceil_div(n, tile.n), 1, repeat


def _columns(matrices: tuple[int, int, int], tile: GemmTile) -> int:
    """Columns of all tiles along n."""
    return ceil_div(matrices[1], tile.n) * tile.n
