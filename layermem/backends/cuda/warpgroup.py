"""Products by warpgroups (cuda/conv_warpgroup.cuh), which GPUs of compute capability 9.0 have: which ops run there, and
their launches.

Architecture, precision, types of blobs, the product and its shape decide, the batch does not: slices of a batch and
bands of a layer have the bits of the whole.  Other products run as on every GPU (implicit_gemm.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

from layermem.backends.cuda import gemm_tiles, implicit_gemm
from layermem.backends.cuda.base import FLOAT, CudaCall
from layermem.backends.cuda.families import is_on
from layermem.backends.cuda.gemm_tiles import (
    DEPTH,
    DGRAD,
    DGRAD_SUMS,
    ENGINES,
    FPROP,
    L2_BYTES,
    PACKED,
    PACKED_BF16,
    ROW_BYTES,
    SMS,
    VECTOR,
    WGRAD,
    Engine,
    group_channels,
    windows,
)
from layermem.backends.cuda.implicit_gemm import writes_moments
from layermem.backends.cuda.launch import Launch, ceil_div, launch
from layermem.backends.struct_layout import StructValue
from layermem.ops import ConvProblem

CAPABILITY = "90"
PRECISIONS = {"tf32": FLOAT, "bf16": 2}  # bytes of an element of B in shared memory, where blobs are in fp32
PACKED_PRECISION = f"{PACKED_BF16.precision} on {PACKED_BF16.storage}"  # of blobs in 16 bits
PRODUCERS = 128  # threads that load
WORD = 32  # bits of a ReLU that dgrad of packed operands copies at once
ALIGNMENT = 1024  # bytes that the ring in shared memory may begin late
FPROP_MOMENTS = f"{FPROP}_moments"  # kernels of their own


class Least(NamedTuple):
    """Columns of a product, how deep it is, and pixels of the image, from which on warpgroups compute it.  An inner
    product has one pixel, and as many rows as the batch has images; a weight gradient is as deep as an image has
    windows, and its rows are outputs: `rows` is the largest power of two that divides these, as full tiles need."""

    columns: int = 1
    depth: int = 1
    pixels: int = 1
    rows: int = 1


Shapes = Mapping[tuple[str, str], Sequence[Least]]  # by precision and product, of which each will do

WIDE, DEEP = Least(columns=256, pixels=2), Least(columns=128, depth=1024, pixels=2)
BF16_DEEP = Least(columns=128, depth=1536, pixels=2)
PACKED_WIDE = Least(columns=256, depth=1152, pixels=196)
# Where they are the faster engine; they compute nothing else.  Modelled, not measured: the step `tiles`
# of tools/gpu_check.py measures both engines on a GPU.
PAYS: Shapes = {
    ("tf32", "conv_fprop"): (WIDE, DEEP),
    ("bf16", "conv_fprop"): (WIDE, BF16_DEEP),
    ("bf16", "conv_dgrad"): (BF16_DEEP,),
    (PACKED_PRECISION, FPROP): (PACKED_WIDE,),
    (PACKED_PRECISION, DGRAD): (PACKED_WIDE,),
    (PACKED_PRECISION, WGRAD): (
        Least(columns=1152, depth=196, pixels=2, rows=256),
        Least(columns=4608, pixels=2, rows=256),
    ),
}
PRODUCTS = (FPROP, DGRAD, WGRAD)
ALWAYS: Shapes = {(its, product): (Least(),) for its in PRECISIONS for product in PRODUCTS} | {
    (PACKED_PRECISION, product): (Least(pixels=2),) for product in PRODUCTS
}  # for checks


class WarpgroupTile(NamedTuple):
    """A block's tile of C; `blocks` share a multiprocessor, and all of these take `pace` cycles for a stage (modelled
    as the paces of gemm_tiles.py are)."""

    m: int
    n: int
    blocks: int
    pace: int
    consumers: int  # threads that multiply
    stages: int = 4  # of the ring in shared memory
    is_packed: bool = False  # of operands in 16 bits
    products: tuple[str, ...] = PRODUCTS  # that have it

    @property
    def name(self) -> str:
        return f"{self.m}x{self.n}"

    @property
    def threads(self) -> int:
        return PRODUCERS + self.consumers

    def shared_bytes(self, precision: str) -> int:
        """Dynamic shared memory of a block."""
        of_b = FLOAT if self.is_packed else PRECISIONS[precision]  # of a word, or of an element
        return self.stages * DEPTH * (self.m * FLOAT + self.n * of_b) + ALIGNMENT

    def grid(self, product: str, m: int, n: int, repeat: int, multiprocessors: int) -> tuple[int, int, int]:
        """Blocks that run at once, each of which takes several tiles: of one matrix, and each has one block at least;
        of all weight gradients of a launch."""
        tiles, at_once = ceil_div(m, self.m) * ceil_div(n, self.n), self.blocks * multiprocessors
        if product == WGRAD:
            return min(tiles * repeat, at_once), 1, 1
        return min(tiles, ceil_div(at_once, repeat)), 1, repeat

    def cycles(self, m: int, n: int, repeat: int) -> int:
        """Of a stage of all tiles: of waves of blocks, or of what they read from the L2 cache."""
        tiles = ceil_div(m, self.m) * ceil_div(n, self.n) * repeat
        waves, rest = divmod(tiles, self.blocks * SMS)
        pipeline = waves * self.pace + (self.pace * ceil_div(rest, SMS) // self.blocks if rest else 0)
        return max(pipeline, tiles * (self.m + self.n) * ROW_BYTES // L2_BYTES)


WARPGROUP_TILES = (WarpgroupTile(256, 128, 1, 1460, 256), WarpgroupTile(128, 64, 2, 1120, 128))
PACKED_TILES = (
    WarpgroupTile(192, 256, 1, 2350, 256, stages=3, is_packed=True, products=(FPROP, DGRAD)),
    WarpgroupTile(256, 192, 1, 1790, 256, stages=3, is_packed=True, products=(WGRAD,)),
    WarpgroupTile(256, 128, 1, 1370, 256, stages=3, is_packed=True, products=(WGRAD,)),
)


class WarpgroupEngine(Engine):
    """The kernels of one precision on sm_90a for the products `by_warpgroups`; for others those of every GPU."""

    __slots__ = ()

    @property
    def on_fp32(self) -> Engine:
        """This one, if its blobs are in fp32; else the one whose weight gradients are computed alike."""
        if not self.storage:
            return self
        own = self.by_warpgroups & {WGRAD}
        plain = ENGINES[self.precision].on_gpu(self.gpu)
        return WarpgroupEngine(*plain._replace(by_warpgroups=own, multiprocessors=self.multiprocessors))

    def tile_of(self, product: str, matrices: tuple[int, int, int]) -> WarpgroupTile:
        """The fastest that the product has."""
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
        """As that of Engine, in a tile of its own."""
        plain = DGRAD if product == DGRAD_SUMS else product
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


def runs_by_warpgroups(engine: Engine, product: str, has_bias: bool) -> bool:
    """Whether the kernel of the product is one of sm_90a."""
    return product in engine.by_warpgroups and not (engine.is_packed and lacks_bias(product, has_bias))


def lacks_bias(product: str, has_bias: bool) -> bool:
    """Whether that keeps a product of packed operands on the other engine: dgrad adds no bias on sm_90a."""
    return product == DGRAD and has_bias


def width_of(engine: Engine) -> int:
    """Elements of each access of the kernels that an engine has on sm_90a."""
    return PACKED if engine.is_packed else VECTOR


def tiles_of(engine: Engine) -> Sequence[WarpgroupTile]:
    """Of its kernels on sm_90a."""
    return PACKED_TILES if engine.is_packed else WARPGROUP_TILES


def shapes_name(engine: Engine) -> str:
    """By which Shapes have it; empty where there are no kernels for it."""
    if engine.is_packed:
        return PACKED_PRECISION
    return engine.precision if engine.precision in PRECISIONS and not engine.storage else ""


def engine_of(call: CudaCall, image: str, whole: ConvProblem) -> Engine:
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
    """Those for which PAYS says so."""
    channels, outputs = group_channels(problem)
    taps, phases, pixels = prod(problem.kernel), prod(problem.stride), problem.h * problem.w
    shapes = {
        FPROP: Least(outputs, taps * channels, pixels),
        DGRAD: Least(channels, ceil_div(taps * outputs, phases), pixels),
        WGRAD: Least(taps * channels, windows(problem), pixels, outputs & -outputs),
    }
    own = frozenset(
        product
        for (its, product), wanted in PAYS.items()
        for least in wanted
        if its == precision and all(own >= bound for own, bound in zip(shapes[product], least, strict=True))
    )
    if precision == PACKED_PRECISION and (channels % WORD or outputs % PACKED_BF16.depth):
        return own - {DGRAD}  # bits of a ReLU in whole words; stages of one tap
    return own


def leaves_units(engine: Engine, product: str) -> bool:
    """Whether the epilogue of the product leaves what a BatchNorm needs of units of rows.  Packed tiles of warpgroups
    have a unit and a half."""
    return writes_moments() and not (engine.is_packed and product in engine.by_warpgroups)


def leaves_moments(engine: Engine) -> bool:
    """Whether conv_fprop leaves the moments of what it writes."""
    return leaves_units(engine, FPROP) and is_on("moments")


def leaves_norm_sums(engine: Engine, problem: ConvProblem) -> bool:
    """Whether conv_dgrad leaves the sums that a BatchNorm needs of what it writes."""
    leaves = implicit_gemm.leaves_norm_sums(engine, problem) and leaves_units(engine, DGRAD)
    return leaves and is_on("sums")
