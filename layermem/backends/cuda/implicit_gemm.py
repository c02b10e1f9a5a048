"""Implicit GEMM: launches of conv_fprop, conv_dgrad and conv_wgrad (cuda/conv.cuh), their tiles and the split of wgrad.

The split is a function of the shape alone, and so the same on every GPU, under every budget and in every run; the tile
is one of shape, precision and GPU, and changes no bit.  Both are those of least time by `cycles`, the split on a
nominal GPU, the tile on that of the architecture (nominal_gpus.py).  The constants of that model (paces, L2_BYTES,
ENDS, ADD_CYCLES) were modelled from the machine code of sm_90 and are not measured; the step `tiles` of
tools/gpu_check.py measures every tile on a GPU beside the one that they choose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import inf, prod
from types import MappingProxyType
from typing import NamedTuple

from layermem.backends.cuda import conv_patch
from layermem.backends.cuda.base import FLOAT, CudaCall
from layermem.backends.cuda.direct_problems import is_direct_wgrad
from layermem.backends.cuda.families import is_on
from layermem.backends.cuda.launch import THREADS, Launch, ceil_div, divider, is_grid, launch, vector_width
from layermem.backends.cuda.nominal_gpus import H200, NominalGpu, nominal_gpu
from layermem.backends.struct_layout import StructValue, StructValues
from layermem.ops import MOMENTS_ROWS, Conv, ConvProblem, InnerProduct

DEPTH = 32  # elements of k in a stage of fp32 tiles, as in cuda/implicit_gemm.cuh; slices end with whole ones
MIN_WINDOWS = 256  # that one split of a weight gradient sums over
MAX_PARTS = 1024  # of a weight gradient whose images are cut, all groups together
COLUMN_NUMBERS, SUMS, GROUP_ROWS = 4, 2, 32  # of a column: numbers that its sums need, sums of so many rows
TABLE_BYTES = 16  # of static shared memory for each row of a tile of conv_fprop
MASK_BITS = 8  # of a byte of a ReLU's mask
SPLITS_IN_FLIGHT, MAX_SPLIT_LINES = 4, 64  # splits that a thread of sum_splits loads at once; threads across the splits
VECTOR = 4  # floats that are accessed at once, where they can be
PACKED = 8  # elements of 16 bits that a packed tile takes at once
FEW = 41  # as elements of each access: four of the maps, and one of the image
MOST_ROUNDED = 3 * 2**22  # weights that are rounded in a launch of their own
PAIRED_PIXELS = 2**14  # a side of the images, with padding, that kernels of 16-byte accesses address

# The nominal GPU of splits, which are the same on every GPU: an H200 at 1.755 GHz.
SMS = H200.multiprocessors
ROW_BYTES, L2_BYTES = 4 * DEPTH, H200.l2_bytes  # of a row of a stage; of the L2 cache in a cycle
DRAM_BYTES = 2222  # in a cycle
ENDS = 2, 5  # cycles of a block before and after its stages: 2 for 5 elements of its tile
ADD_CYCLES = 5000  # of the launch that adds parts
SLACK = 8  # time that fewer parts may cost: one part in so many
MOST_IDLE = 1.5  # columns of a patch's tiles in fp32 for each output: more products than that cost more than copies
FP32_SHARE = 5  # a product in fp32 takes as long as five in tf32, and counts as much where both share a split


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
    return is_divided and not _is_large(problem) and (not reads_weights or problem.filter.count <= MOST_ROUNDED)


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
    return 1 if _is_large(problem) else vector_width(*counts)


def _is_large(problem: ConvProblem) -> bool:
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


class Epilogue(NamedTuple):
    """The struct of that name: y = relu(sum + bias + residual) and its mask.  Addresses, 0 for what is left out.

    largest_zero    of the record (ops.EndsInRelu)
    """

    bias: int = 0
    residual: int = 0
    mask: int = 0
    relu: bool = False
    largest_zero: float = 0.0


NO_EPILOGUE = Epilogue()


def masks_bytes(problem: ConvProblem) -> bool:
    """Whether no byte of a mask of the maps has bits of two pixels, or of two groups that have tiles of their own."""
    outputs = problem.k if is_direct_wgrad(problem) else problem.k // problem.groups
    return outputs % MASK_BITS == 0


def epilogue_of(op: Conv | InnerProduct, call: CudaCall, problem: ConvProblem) -> Epilogue:
    """What of the epilogue runs in conv_fprop; a ReLU whose mask would share bytes does not."""
    relu = op.relu and not (call["mask"] and not masks_bytes(problem))
    residual = call["x1"] if op.residual else 0  # else x1 is the second bottom, if there is one
    return Epilogue(call["w1"], residual, call["mask"] if relu else 0, relu, op.largest_zero)


def writes_moments() -> bool:
    """Whether the rows of some tile of conv_fprop are whole units of moments."""
    return any(tile.m % MOMENTS_ROWS == 0 for tile in TILES)


def conv_fprop(
    engine: Engine,
    problem: ConvProblem,
    maps: int,
    image: int,
    weights: int,
    epilogue: Epilogue = NO_EPILOGUE,
    moments: int = 0,
    *,
    filter_pitch: int = 0,
) -> Launch:
    """
    moments        where the moments of the maps go, if writes_moments()
    filter_pitch   given where each group has a part of all rows of the weights, which are of so many elements
    """
    channels, outputs = group_channels(problem)
    matrices, depth = (problem.positions, outputs, problem.groups), prod(problem.kernel) * channels
    rows, width = MOMENTS_ROWS if moments else 1, engine.vector_width(problem, channels)
    plain = engine.launch(
        FPROP,
        width,
        "ConvFpropArgs",
        matrices,
        depth,
        rows=rows,
        **fprop_struct(problem, maps, image, weights, epilogue, moments, filter_pitch),
    )
    return engine.of_patch(plain, problem, matrices) if width == 1 else plain


def fprop_struct(
    problem: ConvProblem,
    maps: int,
    image: int,
    weights: int,
    epilogue: Epilogue,
    moments: int = 0,
    filter_pitch: int = 0,
) -> StructValues:
    """The struct ConvFpropArgs of cuda/conv.cuh."""
    channels, outputs = group_channels(problem)
    depth = prod(problem.kernel) * channels
    return {
        "maps": maps,
        "image": image,
        "filter": weights,
        "problem": problem_struct(problem),
        "by_channels": divider(channels),
        "by_kernel_w": divider(problem.kernel[1]),
        "epilogue": epilogue._asdict(),
        "moments": moments,
        "by_maps_w": divider(problem.out_w),
        "by_maps_h": divider(problem.out_h),
        "filter_pitch": filter_pitch or depth,
        "filter_step": depth if filter_pitch else outputs * depth,
    }


def conv_dgrad(
    engine: Engine,
    problem: ConvProblem,
    image: int,
    maps: int,
    weights: int,
    bias: int = 0,
    accumulate: bool = False,
    *,
    maps_pitch: int = 0,
    resume: bool = False,
    kept: int = 0,
    norm: StructValues | None = None,
) -> Launch:
    """A strided dgrad is one problem per phase, stride_h x stride_w of them.

    kept         bits of the image: elements without theirs become zero; 0 keeps all
    norm         the struct NormGradient of cuda/conv_sums.cuh, if leaves_norm_sums(), whose sums are taken on the way
    maps_pitch   given where the maps, and the rows of the weights, are a band of more; `resume`: the image holds the
                 sums over the bands before, and this one goes on from there
    """
    channels, outputs = group_channels(problem)
    stride_h, stride_w = problem.stride
    m = problem.n * ceil_div(problem.h, stride_h) * ceil_div(problem.w, stride_w)  # of the largest phase
    repeat = problem.groups * stride_h * stride_w
    matrices, depth = (m, channels, repeat), ceil_div(prod(problem.kernel) * outputs, stride_h * stride_w)
    width = engine.vector_width(problem, channels, outputs, maps_pitch)
    rows = 1 if norm is None else MOMENTS_ROWS
    dgrad: dict[str, StructValue] = {
        "image": image,
        "maps": maps,
        "filter": weights,
        "bias": bias,
        "kept": kept,
        "problem": problem_struct(problem, maps_pitch),
        "by_outputs": divider(outputs),
        "accumulate": accumulate,
        "resume": resume,
    }
    if norm is None:
        return engine.launch(DGRAD, width, "ConvDgradArgs", matrices, depth, rows=rows, **dgrad)
    return engine.launch(DGRAD_SUMS, width, "ConvDgradSumsArgs", matrices, depth, rows=rows, dgrad=dgrad, norm=norm)


def leaves_norm_sums(engine: Engine, problem: ConvProblem) -> bool:
    """Whether conv_dgrad takes the sums that a BatchNorm needs of what it writes: its kernels are those of several
    elements in an access and of one phase."""
    width = engine.vector_width(problem, *group_channels(problem))
    return writes_moments() and width >= VECTOR and problem.stride == (1, 1)


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
    return is_wide and not _is_large(problem) and vector_width(outputs, maps_pitch or problem.k) == 4


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
