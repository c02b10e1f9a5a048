"""Products by warpgroups (cuda/conv_warpgroup.cuh) on GPUs of compute capability 9.0: their selection and launches.

The choice depends on architecture, precision, types of blobs, the product and its shape, but not on the batch: slices
of a batch and bands of a layer have the bits of the whole.  Other products run as on every GPU (implicit_gemm.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

from layermem.backends.cuda.base import FLOAT, CudaCall
from layermem.backends.cuda.products import gemm_tiles, implicit_gemm
from layermem.backends.cuda.products.gemm_tiles import (
    DEPTH,
    DGRAD,
    DGRAD_SUMS_KERNEL,
    ENGINES,
    FPROP,
    L2_RATE,
    PACKED,
    PACKED_BF16,
    PRODUCTS,
    ROW_BYTES,
    SMS,
    VECTOR,
    WGRAD,
    GemmEngine,
    group_channels,
    windows,
)
from layermem.backends.cuda.products.implicit_gemm import writes_moments
from layermem.backends.cuda.support.families import is_on
from layermem.backends.cuda.support.launch import Launch, ceil_div, launch
from layermem.backends.struct_layout import StructValue
from layermem.ops import ConvProblem

CAPABILITY = "90"
PRECISIONS = {"tf32": FLOAT, "bf16": 2}  # bytes of an element of B in shared memory, for fp32 blobs
PACKED_PRECISION = f"{PACKED_BF16.precision} on {PACKED_BF16.storage}"  # with 16-bit blobs
PRODUCERS = 128  # threads of a block that load
WORD = 32  # bits of a ReLU's mask that dgrad of packed operands copies at once
ALIGNMENT = 1024  # bytes to align the ring in shared memory
FPROP_MOMENTS = f"{FPROP}_moments"  # separate kernels


class MinShape(NamedTuple):
    """The minimum shape of a product that warpgroups compute: columns, depth, and pixels of the image.  An inner
    product has one pixel, and as many rows as the batch has images.  The depth of a weight gradient is the number of
    windows of an image; its rows are outputs: `rows` is the largest power of two that divides them, for full tiles."""

    columns: int = 1
    depth: int = 1
    pixels: int = 1
    rows: int = 1


Shapes = Mapping[tuple[str, str], Sequence[MinShape]]  # by precision and product; any of the shapes suffices

WIDE, DEEP = MinShape(columns=256, pixels=2), MinShape(columns=128, depth=1024, pixels=2)
BF16_DEEP = MinShape(columns=128, depth=1536, pixels=2)
PACKED_WIDE = MinShape(columns=256, depth=1152, pixels=196)
# Shapes for which warpgroups are the faster engine; other shapes use the other engine.  Modelled, not measured: the
# step `tiles` of tools/gpu_check.py measures both engines on a GPU.
THRESHOLDS: Shapes = {
    ("tf32", "conv_fprop"): (WIDE, DEEP),
    ("bf16", "conv_fprop"): (WIDE, BF16_DEEP),
    ("bf16", "conv_dgrad"): (BF16_DEEP,),
    (PACKED_PRECISION, FPROP): (PACKED_WIDE,),
    (PACKED_PRECISION, DGRAD): (PACKED_WIDE,),
    (PACKED_PRECISION, WGRAD): (
        MinShape(columns=1152, depth=196, pixels=2, rows=256),
        MinShape(columns=4608, pixels=2, rows=256),
    ),
}
NO_THRESHOLDS: Shapes = {(name, product): (MinShape(),) for name in PRECISIONS for product in PRODUCTS} | {
    (PACKED_PRECISION, product): (MinShape(pixels=2),) for product in PRODUCTS
}  # for checks


class WarpgroupTile(NamedTuple):
    """A block's tile of C; `blocks` blocks share a multiprocessor, and together take `pace` cycles for a stage
    (modelled like the paces of gemm_tiles.py)."""

    m: int
    n: int
    blocks: int
    pace: int
    consumers: int  # threads that multiply
    stages: int = 4  # of the ring in shared memory
    is_packed: bool = False  # 16-bit operands
    products: tuple[str, ...] = PRODUCTS  # that use it

    @property
    def name(self) -> str:
        return f"{self.m}x{self.n}"

    @property
    def threads(self) -> int:
        return PRODUCERS + self.consumers

    def shared_bytes(self, precision: str) -> int:
        """Dynamic shared memory of a block."""
        of_b = FLOAT if self.is_packed else PRECISIONS[precision]  # bytes of a word, or of an element
        return self.stages * DEPTH * (self.m * FLOAT + self.n * of_b) + ALIGNMENT

    def grid(self, product: str, m: int, n: int, repeat: int, multiprocessors: int) -> tuple[int, int, int]:
        """The grid of blocks that run at the same time, each of which computes several tiles: of one matrix, with at
        least one block per matrix, or of all weight gradients of a launch."""
        tiles, at_once = ceil_div(m, self.m) * ceil_div(n, self.n), self.blocks * multiprocessors
        if product == WGRAD:
            return min(tiles * repeat, at_once), 1, 1
        return min(tiles, ceil_div(at_once, repeat)), 1, repeat

    def cycles(self, m: int, n: int, repeat: int) -> int:
        """Modelled cycles of a stage of all tiles: the maximum of the waves of blocks and of their L2 reads."""
        tiles = ceil_div(m, self.m) * ceil_div(n, self.n) * repeat
        waves, rest = divmod(tiles, self.blocks * SMS)
        pipeline = waves * self.pace + (self.pace * ceil_div(rest, SMS) // self.blocks if rest else 0)
        return max(pipeline, tiles * (self.m + self.n) * ROW_BYTES // L2_RATE)


WARPGROUP_TILES = (WarpgroupTile(256, 128, 1, 1460, 256), WarpgroupTile(128, 64, 2, 1120, 128))
PACKED_TILES = (
    WarpgroupTile(192, 256, 1, 2350, 256, stages=3, is_packed=True, products=(FPROP, DGRAD)),
    WarpgroupTile(256, 192, 1, 1790, 256, stages=3, is_packed=True, products=(WGRAD,)),
    WarpgroupTile(256, 128, 1, 1370, 256, stages=3, is_packed=True, products=(WGRAD,)),
)


class WarpgroupEngine(GemmEngine):
    """The kernels of one precision on sm_90a for the products `by_warpgroups`; otherwise the kernels for every GPU."""

    __slots__ = ()

    @property
    def on_fp32(self) -> GemmEngine:
        """This engine if its blobs are in fp32; otherwise the fp32 engine with the same bits of weight gradients."""
        if not self.storage:
            return self
        own = self.by_warpgroups & {WGRAD}
        plain = ENGINES[self.precision].on_gpu(self.gpu)
        return WarpgroupEngine(*plain._replace(by_warpgroups=own, multiprocessors=self.multiprocessors))

    def tile_of(self, product: str, matrices: tuple[int, int, int]) -> WarpgroupTile:
        """The fastest tile of the product."""
        own = (tile for tile in tiles_of(self) if product in tile.products)
        return min(own, key=lambda tile: tile.cycles(*matrices))

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
        """Like GemmEngine.launch, with a tile of this engine."""
        plain = DGRAD if product == DGRAD_SUMS_KERNEL else product
        if not runs_by_warpgroups(self, plain, bool(values.get("bias"))):
            return super().launch(product, vector, args, matrices, depth, rows=rows, **values)
        own = self.tile_of(plain, matrices)
        assert vector == width_of(self) and own.m % rows == 0, "engine_of() and leaves_units() decide"
        kernel = FPROP_MOMENTS if product == FPROP and rows > 1 else product
        return launch(
            f"{self.module}_sm90a",
            f"{kernel}_{own.name}_v{vector}",
            args,
            own.grid(plain, *matrices, self.multiprocessors),
            own.threads,
            shared=own.shared_bytes(self.precision),
            base=values,
        )


def runs_by_warpgroups(engine: GemmEngine, product: str, has_bias: bool) -> bool:
    """Whether the kernel of the product is one of sm_90a."""
    return product in engine.by_warpgroups and not (engine.is_packed and lacks_bias(product, has_bias))


def lacks_bias(product: str, has_bias: bool) -> bool:
    """Whether a bias keeps a product of packed operands on the other engine: dgrad adds no bias on sm_90a."""
    return product == DGRAD and has_bias


def width_of(engine: GemmEngine) -> int:
    """Elements per access of an engine's kernels on sm_90a."""
    return PACKED if engine.is_packed else VECTOR


def tiles_of(engine: GemmEngine) -> Sequence[WarpgroupTile]:
    """The tiles of an engine's kernels on sm_90a."""
    return PACKED_TILES if engine.is_packed else WARPGROUP_TILES


def shapes_name(engine: GemmEngine) -> str:
    """The precision key of the engine in Shapes; empty if there are no kernels for it."""
    if engine.is_packed:
        return PACKED_PRECISION
    return engine.precision if engine.precision in PRECISIONS and not engine.storage else ""


def engine_of(call: CudaCall, image: str, whole: ConvProblem) -> GemmEngine:
    """The engine for a bound op; `image` is the role of the image, `whole` the problem without bands."""
    engine = gemm_tiles.engine_of(call, image)
    if call.capability != CAPABILITY or not shapes_name(engine) or not is_on("warpgroups"):
        return engine
    if engine.vector_width(whole, *group_channels(whole)) != width_of(engine):
        return engine
    own = products_by_warpgroups(shapes_name(engine), whole)
    if not own:
        return engine
    return WarpgroupEngine(*engine._replace(by_warpgroups=own, multiprocessors=call.multiprocessors or SMS))


def products_by_warpgroups(precision: str, problem: ConvProblem) -> frozenset[str]:
    """The products that warpgroups compute for this problem, by THRESHOLDS."""
    channels, outputs = group_channels(problem)
    taps, phases, pixels = prod(problem.kernel), prod(problem.stride), problem.h * problem.w
    shapes = {
        FPROP: MinShape(outputs, taps * channels, pixels),
        DGRAD: MinShape(channels, ceil_div(taps * outputs, phases), pixels),
        WGRAD: MinShape(taps * channels, windows(problem), pixels, outputs & -outputs),
    }
    own = frozenset(
        product
        for (name, product), wanted in THRESHOLDS.items()
        for least in wanted
        if name == precision and all(own >= bound for own, bound in zip(shapes[product], least, strict=True))
    )
    if precision == PACKED_PRECISION and (channels % WORD or outputs % PACKED_BF16.depth):
        return own - {DGRAD}  # masks have whole words; stages have one tap
    return own


def leaves_units(engine: GemmEngine, product: str) -> bool:
    """Whether the epilogue of the product computes sums in units of rows for a BatchNorm.  Packed tiles of warpgroups
    have one and a half units, so they cannot."""
    return writes_moments() and not (engine.is_packed and product in engine.by_warpgroups)


def leaves_moments(engine: GemmEngine) -> bool:
    """Whether conv_fprop computes the moments of its result."""
    return leaves_units(engine, FPROP) and is_on("moments")


def leaves_norm_sums(engine: GemmEngine, problem: ConvProblem) -> bool:
    """Whether conv_dgrad computes the sums of its result that a BatchNorm needs."""
    leaves = implicit_gemm.leaves_norm_sums(engine, problem) and leaves_units(engine, DGRAD)
    return leaves and is_on("sums")
