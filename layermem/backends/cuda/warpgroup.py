"""Products by warpgroups (cuda/conv_warpgroup.cuh), which GPUs of compute capability 9.0 have: which ops run there, and
their launches.

Architecture, precision and shape decide, the batch does not: slices of a batch and bands of a layer have the bits of
the whole.  Other products run as on every GPU (implicit_gemm.py).
"""

from __future__ import annotations

from typing import NamedTuple

from layermem.backends.cuda import implicit_gemm
from layermem.backends.cuda.base import FLOAT, CudaCall
from layermem.backends.cuda.implicit_gemm import (
    DEPTH,
    ENGINES,
    L2_BYTES,
    ROW_BYTES,
    SMS,
    VECTOR,
    Engine,
    group_channels,
    vector_width_of,
    writes_moments,
)
from layermem.backends.cuda.launch import Launch, ceil_div, launch
from layermem.backends.cuda.struct_layout import StructValue
from layermem.ops import ConvProblem

CAPABILITY = "90"
PRECISIONS = {"tf32": FLOAT, "bf16": 2}  # bytes of an element of B in shared memory
PRODUCERS = 128  # threads that load
STAGES, ALIGNMENT = 4, 1024  # of the ring in shared memory, bytes that it may begin late


class WarpgroupTile(NamedTuple):
    """A block's tile of C; `blocks` share a multiprocessor, and all of these take `pace` cycles for a stage
    (tools/sass_model.py)."""

    m: int
    n: int
    blocks: int
    pace: int

    @property
    def name(self) -> str:
        return f"{self.m}x{self.n}"

    @property
    def threads(self) -> int:
        return PRODUCERS + self.m

    def shared_bytes(self, precision: str) -> int:
        """Dynamic shared memory of a block."""
        return STAGES * DEPTH * (self.m * FLOAT + self.n * PRECISIONS[precision]) + ALIGNMENT

    def grid(self, m: int, n: int, repeat: int) -> tuple[int, int, int]:
        """Blocks that run at once, each of which takes several tiles; of every matrix one at least."""
        tiles = ceil_div(m, self.m) * ceil_div(n, self.n)
        return min(tiles, ceil_div(self.blocks * SMS, repeat)), 1, repeat

    def cycles(self, m: int, n: int, repeat: int) -> int:
        """Of a stage of all tiles: of waves of blocks, or of what they read from the L2 cache."""
        tiles = ceil_div(m, self.m) * ceil_div(n, self.n) * repeat
        waves, rest = divmod(tiles, self.blocks * SMS)
        pipeline = waves * self.pace + (self.pace * ceil_div(rest, SMS) // self.blocks if rest else 0)
        return max(pipeline, tiles * (self.m + self.n) * ROW_BYTES // L2_BYTES)


WARPGROUP_TILES = (WarpgroupTile(256, 128, 1, 1460), WarpgroupTile(128, 64, 2, 1120))


class WarpgroupEngine(Engine):
    """The kernels of one precision on sm_90a."""

    __slots__ = ()

    @property
    def module(self) -> str:
        return f"convolution_{self.precision}_sm90a"

    @property
    def on_fp32(self) -> Engine:
        """This one: its blobs are in fp32."""
        return self

    def launch(
        self, product: str, vector: int, args: str, tile: implicit_gemm.Tile, matrices: tuple[int, int, int], *,
        rows: int = 1, **values: StructValue,
    ) -> Launch:  # fmt: skip
        """As that of Engine, in a tile of its own."""
        assert vector == VECTOR and rows == 1, "engine_of() and leaves_moments() decide for the whole op"
        own = min(WARPGROUP_TILES, key=lambda each: each.cycles(*matrices))
        return launch(
            self.module, f"{product}_{own.name}_v{VECTOR}", args, own.grid(*matrices), own.threads,
            shared=own.shared_bytes(self.precision), base=values,
        )  # fmt: skip


def engine_of(call: CudaCall, image: str, whole: ConvProblem) -> Engine:
    """The engine for a bound op; `image` is the role of the image, `whole` the problem without bands."""
    engine = implicit_gemm.engine_of(call, image)
    covers = call.capability == CAPABILITY and call.precision in PRECISIONS and not call.storage
    if covers and vector_width_of(whole, *group_channels(whole)) == VECTOR:
        return WarpgroupEngine(*ENGINES[call.precision])
    return engine


def leaves_moments(engine: Engine) -> bool:
    """Whether conv_fprop leaves the moments of what it writes."""
    return writes_moments() and not isinstance(engine, WarpgroupEngine)


def leaves_norm_sums(engine: Engine, problem: ConvProblem) -> bool:
    """Whether conv_dgrad leaves the sums that a BatchNorm needs of what it writes."""
    return implicit_gemm.leaves_norm_sums(engine, problem) and not isinstance(engine, WarpgroupEngine)
