"""Tiles of implicit GEMM (cuda/conv.cuh): the engine of each precision, how long its tiles take, and the choice of one.

A tile is a function of shape, precision and GPU, and changes no bit: that of least time by `cycles` on the GPU of the
architecture (nominal_gpus.py).  The constants of that model (paces, L2_BYTES, ENDS) were modelled from the machine code
of sm_90 and are not measured; the step `tiles` of tools/gpu_check.py measures every tile on a GPU beside the one that
they choose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf, prod
from types import MappingProxyType
from typing import NamedTuple

from layermem.backends.cuda import conv_patch
from layermem.backends.cuda.base import FLOAT, CudaCall
from layermem.backends.cuda.families import is_on
from layermem.backends.cuda.launch import Launch, ceil_div, is_grid, launch, vector_width
from layermem.backends.cuda.nominal_gpus import H200, NominalGpu, nominal_gpu
from layermem.backends.struct_layout import StructValue, StructValues
from layermem.ops import ConvProblem

DEPTH = 32  # elements of k in a stage of fp32 tiles, as in cuda/implicit_gemm.cuh; slices end with whole ones
COLUMN_NUMBERS, SUMS, GROUP_ROWS = 4, 2, 32  # of a column: numbers that its sums need, sums of so many rows
TABLE_BYTES = 16  # of static shared memory for each row of a tile of conv_fprop
VECTOR = 4  # floats that are accessed at once, where they can be
PACKED = 8  # elements of 16 bits that a packed tile takes at once
FEW = 41  # as elements of each access: four of the maps, and one of the image
MOST_ROUNDED = 3 * 2**22  # weights that are rounded in a launch of their own
PAIRED_PIXELS = 2**14  # a side of the images, with padding, that kernels of 16-byte accesses address

# The nominal GPU of splits, which are the same on every GPU: an H200 at 1.755 GHz.
SMS = H200.multiprocessors
ROW_BYTES, L2_BYTES = 4 * DEPTH, H200.l2_bytes  # of a row of a stage; of the L2 cache in a cycle
ENDS = 2, 5  # cycles of a block before and after its stages: 2 for 5 elements of its tile
MOST_IDLE = 1.5  # columns of a patch's tiles in fp32 for each output: more products than that cost more than copies


FPROP, DGRAD, WGRAD = "conv_fprop", "conv_dgrad", "conv_wgrad"
DGRAD_SUMS = "conv_dgrad_sums"
PRODUCTS = FPROP, DGRAD, WGRAD


class Tile(NamedTuple):
    m: int
    n: int
    threads: int  # in fp32; 0 where only tensor cores have it, and runs of several elements
    mma_threads: int = 128  # on tensor cores
    two_sum_threads: int = 128  # there, with two sums for each element: in fp32x3
    products: tuple[str, ...] = PRODUCTS  # that have it: few channels have many rows, few outputs many columns

    @property
    def name(self) -> str:
        return f"{self.m}x{self.n}"


COMMON_TILES = (  # of all precisions
    Tile(128, 128, 256, 128, 256),
    Tile(128, 64, 128),
    Tile(64, 64, 64),
    Tile(128, 32, 128),
)
TALL_TILE = Tile(512, 64, 0, 256, products=(FPROP, DGRAD))
WIDE_TILES = (
    Tile(128, 256, 0, 256, products=(WGRAD,)),
    Tile(128, 192, 0, 384, products=(WGRAD,)),
    Tile(64, 192, 0, 192, products=(WGRAD,)),
)
LARGE_TILE = Tile(256, 128, 0, 256)
ALL_TILES = (TALL_TILE, LARGE_TILE, *WIDE_TILES, *COMMON_TILES, Tile(64, 32, 64, 64, 64))
TILES = ALL_TILES  # that are tried, where an engine has them
PATCH_TILES = (Tile(128, 96, 128), Tile(128, 64, 128))  # of images of few channels


def sums_bytes(tile: Tile) -> int:
    """Dynamic shared memory that the epilogue of conv_dgrad_sums needs, as in cuda/conv_sums.cuh."""
    groups = tile.m // GROUP_ROWS
    return FLOAT * tile.n * (tile.m + COLUMN_NUMBERS + SUMS * groups)


Paces = Mapping[str, Sequence[int]]  # by tile: cycles of a stage with 1, 2, .. blocks on a multiprocessor, up to all


class Engine(NamedTuple):
    """The three kernels in one precision, the stages of their shared-memory ring, and how long a stage takes: modelled,
    for the first of its products on blobs in fp32, or in 16 bits where operands are.  Whoever changes these paces
    changes bits: the split follows from them.

    paces       of the tiles that it has
    storage     "" or the word of NARROW of the type of image and maps; weights and their gradients are in fp32
    wide_image  whether the image is in fp32 all the same, as the data of a net are
    depth       elements of k in a stage
    vector      elements of each access, or FEW; 0: by the shape
    by_warpgroups   products that the engine of one architecture computes instead (warpgroup.py)
    multiprocessors   of the GPU: as many blocks of that engine run at once, or twice as many
    gpu         that tiles are chosen for, of which `paces` are
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

    def on_gpu(self, gpu: NominalGpu) -> Engine:
        """That whose tiles are chosen for another GPU than the H200."""
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
    def tiles(self) -> tuple[Tile, ...]:
        own = tuple(tile for tile in ALL_TILES if tile.name in self.paces)
        return tuple(tile for tile in own if tile in TILES) or own

    def own_tiles(self, product: str, vector: int) -> tuple[Tile, ...]:
        """All that `product` has for accesses of so many elements."""
        own = (tile for tile in ALL_TILES if tile.name in self.paces and product in tile.products)
        return tuple(tile for tile in own if vector > 1 or tile.threads)

    def tiles_of(self, product: str, vector: int) -> tuple[Tile, ...]:
        """Those of TILES among them; all of them if these are none."""
        own = self.own_tiles(product, vector)
        return tuple(tile for tile in own if tile in TILES) or own

    @property
    def is_packed(self) -> bool:
        """Whether operands are copied in 16 bits, and so weights are rounded before."""
        return self.depth > DEPTH

    @property
    def module(self) -> str:
        """The source of the kernels, which are compiled for one type of blobs."""
        of_precision = "" if self.precision == "fp32" else f"_{self.precision}"
        return f"convolution{of_precision}" + (f"_on_{self.storage}" if self.storage else "")

    def on(self, storage: str, *, wide_image: bool = False) -> Engine:
        """That of blobs in 16 bits which are widened; data in fp32 are copied one by one."""
        paces = {tile.name: self.paces[tile.name] for tile in COMMON_TILES}
        return self._replace(paces=paces, storage=storage, wide_image=wide_image, vector=1 if wide_image else 0)

    @property
    def on_fp32(self) -> Engine:
        """That of blobs in fp32: the same bits, of what has been widened."""
        return ENGINES[self.precision].on_gpu(self.gpu)

    @property
    def of_few_channels(self) -> Engine:
        """That of weight gradients where runs of maps alone are of four."""
        return self._replace(paces=self._paces_on(self.gpu, PACES_OF_FEW[self.precision]), vector=FEW)

    def vector_width(self, problem: ConvProblem, *counts: int) -> int:
        """Elements per access, where runs of channels or outputs are of `counts`."""
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
        """`product`, one of PRODUCTS or DGRAD_SUMS, of `matrices`: rows, columns and how many there are, over k in
        [0, depth), with tiles of a multiple of `rows` rows.

        No tile changes a bit, so those that need less shared memory are alternatives: each is the fastest that needs
        less than the one before."""
        tiles = by_time(self, DGRAD if product == DGRAD_SUMS else product, matrices, depth, vector, rows)
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
        """conv_fprop by a patch of the image (cuda/conv_patch.cuh), where that pays, else `plain`, which has the same
        arguments and bits and is an alternative."""
        if self.storage and not self.wide_image:
            return plain
        tiles = PATCH_TILES[1:] if self.precision == "fp32x3" else PATCH_TILES  # two sums leave no registers for 96
        tile = min(tiles, key=lambda each: (_columns(matrices, each), -each.n))
        if not conv_patch.pays(problem, tile.m, tile.n):
            return plain
        if self.precision == "fp32" and _columns(matrices, tile) > MOST_IDLE * matrices[1]:
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
        self, product: str, vector: int, tile: Tile, matrices: tuple[int, int, int]
    ) -> tuple[str, tuple[int, int, int], int, int]:
        """Name of the kernel, grid, threads and dynamic shared memory of a block."""
        threads = {"fp32": tile.threads, "fp32x3": tile.two_sum_threads}.get(self.precision, tile.mma_threads)
        blobs = "_data" if self.wide_image else ""
        shared = self.shared_bytes(tile)
        if product == DGRAD_SUMS:
            shared = max(shared, sums_bytes(tile))
        return f"{product}{blobs}_{tile.name}_v{vector}", grid_of(tile, *matrices), threads, shared

    def shared_bytes(self, tile: Tile) -> int:
        """Dynamic shared memory of a block: the ring of stages."""
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

PACES_OF_FEW: Mapping[str, Paces] = MappingProxyType(
    {  # of conv_wgrad
        "fp32": {"64x64": (7330, 7330, 8330, 8330, 8330, 10750), "64x32": (3780, 3780, 4690, 4690, 4690, 6610)},
        "fp32x3": {"64x64": (1150, 1790, 2520), "64x32": (1290, 1290, 1950, 1950, 1950, 2560)},
        "tf32": {"64x64": (750, 1020, 1360, 1740), "64x32": (770, 770, 1140, 1140, 1140, 1530)},
        "bf16": {"64x64": (690, 940, 1260), "64x32": (760, 760, 1140, 1140, 1140, 1510)},
    }
)

ENGINES = {
    "fp32": Engine("fp32", 2, FP32_PACES),
    "fp32x3": Engine("fp32x3", 3, FP32X3_PACES),
    "tf32": Engine("tf32", 3, TF32_PACES),
    "bf16": Engine("bf16", 3, BF16_PACES),
}


WIDENING = ("fp32", "tf32")  # precisions of products that widen blobs in 16 bits
PACKED_BF16 = Engine("bf16", 3, PACKED_BF16_PACES, "bf16", depth=2 * DEPTH, vector=PACKED)
PACES_OF_DATA: Paces = MappingProxyType({name: BF16_PACES[name] for name in ("128x128", "128x64", "64x64")})
BF16_OF_DATA = Engine("bf16", 3, PACES_OF_DATA, "bf16", wide_image=True, vector=1)


def engine_of(call: CudaCall, image: str) -> Engine:
    """The engine for a bound op; `image` is the role of the image."""
    engine = engine_for(call.precision, call.storage, wide_image=image not in call.narrow)
    return engine.on_gpu(nominal_gpu(call.capability, call.multiprocessors))


def engine_of_fp32(call: CudaCall) -> Engine:
    """The same where all blobs are in fp32."""
    return ENGINES[call.precision].on_gpu(nominal_gpu(call.capability, call.multiprocessors))


def engine_for(precision: str, storage: str, *, wide_image: bool = False) -> Engine:
    """That of products whose blobs are in this storage, "" or a word of NARROW, or all but the image."""
    engine = ENGINES[precision]
    if not storage:
        return engine
    if precision in WIDENING:
        return engine.on(storage, wide_image=wide_image)
    return BF16_OF_DATA if wide_image else PACKED_BF16


def takes_narrow(precision: str, problem: ConvProblem, step: str, word: str, *, wide_image: bool) -> bool:
    """Whether products of this precision take blobs in the type `word` as they are.  For one precision and type it
    depends on the problem alone: kernels of packed tiles sum in another order than those of fp32 tiles."""
    if precision in WIDENING:
        return True
    is_taken = (precision, word) == ("bf16", "bf16") and (wide_image or _is_packable(problem, step))
    return is_taken and is_on("packed")


def _is_packable(problem: ConvProblem, step: str) -> bool:
    """Whether copies are of 16 bytes; and whether weights, if they are operands, are so few that they are rounded
    first: others would move more bytes than blobs do that are widened."""
    reads_weights = step in ("forward", "dgrad")
    is_divided = not any(count % PACKED for count in group_channels(problem))
    return is_divided and not is_large(problem) and (not reads_weights or problem.filter.count <= MOST_ROUNDED)


def group_channels(problem: ConvProblem) -> tuple[int, int]:
    """(input channels, output channels) of one group."""
    return problem.c // problem.groups, problem.k // problem.groups


def problem_struct(problem: ConvProblem, maps_pitch: int = 0) -> StructValues:
    """The struct ConvProblem of cuda/conv.cuh; `maps_pitch` is 0 unless the maps are a band of wider ones."""
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
    """Of one image."""
    return problem.out_h * problem.out_w


def vector_width_of(problem: ConvProblem, *counts: int) -> int:
    """Floats per access, where runs of channels or outputs are of `counts`."""
    return 1 if is_large(problem) else vector_width(*counts)


def is_large(problem: ConvProblem) -> bool:
    sides = zip((problem.h, problem.w), problem.pad, strict=True)
    return any(side + 2 * pad >= PAIRED_PIXELS for side, pad in sides)


def cycles(engine: Engine, tile: Tile, matrices: tuple[int, int, int], depth: int, l2_bytes: int = 0) -> int:
    """Of a launch that computes `matrices`, rows, columns and how many there are, over k in [0, depth): of waves of
    blocks, the last one with those that are left, or of their reads from the L2 cache."""
    blocks, stages, paces = prod(grid_of(tile, *matrices)), ceil_div(depth, engine.depth), engine.paces[tile.name]
    ends = tile.m * tile.n * ENDS[0] // ENDS[1]
    multiprocessors, l2_bytes = engine.gpu.multiprocessors, l2_bytes or engine.gpu.l2_bytes
    waves, rest = divmod(blocks, len(paces) * multiprocessors)
    pipeline = waves * (stages * paces[-1] + ends)
    if rest:
        pipeline += stages * paces[ceil_div(rest, multiprocessors) - 1] + ends
    rows, columns, _ = matrices
    return max(pipeline, blocks * stages * (min(tile.m, rows) + min(tile.n, columns)) * ROW_BYTES // l2_bytes)


def by_time(
    engine: Engine, product: str, matrices: tuple[int, int, int], depth: int, vector: int = PACKED, rows: int = 1
) -> list[Tile]:
    """Tiles for accesses of `vector` elements, of those of a multiple of so many rows, the fastest first."""
    tiles = [tile for tile in engine.tiles_of(product, vector) if tile.m % rows == 0]
    return sorted(tiles, key=lambda tile: cycles(engine, tile, matrices, depth))


def tile_for(
    engine: Engine, product: str, matrices: tuple[int, int, int], depth: int, vector: int = PACKED, rows: int = 1
) -> Tile:
    """The fastest of them."""
    return by_time(engine, product, matrices, depth, vector, rows)[0]


def with_less_memory(engine: Engine, tiles: Sequence[Tile]) -> Iterator[Tile]:
    """The first, and each behind it that needs less shared memory than all before."""
    least = inf
    for tile in tiles:
        if engine.shared_bytes(tile) < least:
            least = engine.shared_bytes(tile)
            yield tile


def grid_of(tile: Tile, m: int, n: int, repeat: int) -> tuple[int, int, int]:
    """Tiles of one matrix, those along n first."""
    return ceil_div(m, tile.m) * ceil_div(n, tile.n), 1, repeat


def _columns(matrices: tuple[int, int, int], tile: Tile) -> int:
    """Of all tiles along n."""
    return ceil_div(matrices[1], tile.n) * tile.n
