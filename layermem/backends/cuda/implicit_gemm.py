"""Implicit GEMM: launches of conv_fprop, conv_dgrad and conv_wgrad (cuda/conv.cuh), their tiles and the split of wgrad.

Tile and split are functions of the shape alone, for a nominal card of 128 multiprocessors, so that every card, budget
and run adds in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from layermem.backends.cuda.launch import Launch, ceil_div, divider, launch, width

SMS = 128  # multiprocessors of the nominal card
DEPTH = 32  # elements of k in a stage, as in cuda/implicit_gemm.cuh
MIN_WINDOWS = 256  # that one split of a weight gradient sums over
PART_COST = 50  # multiply-adds that take as long as writing and reading one element of a partial sum


class Tile(NamedTuple):
    m: int
    n: int
    threads: int  # in fp32; on tensor cores every tile has four warps
    cost: float  # per element, relative to the largest tile: smaller ones load more for each product

    @property
    def name(self) -> str:
        return f"{self.m}x{self.n}"


TILES = (Tile(128, 128, 256, 1.0), Tile(128, 64, 128, 1.1), Tile(64, 64, 64, 1.2), Tile(128, 32, 128, 1.4))


class Engine(NamedTuple):
    """The module with the three kernels in one precision, and the stages of its shared-memory ring."""

    module: str
    stages: int

    def launch(self, function: str, args: str, tile: Tile, grid: tuple[int, int, int], **values: Any) -> Launch:
        threads = tile.threads if self.module == "convolution" else 128
        shared = self.stages * (tile.m + tile.n) * DEPTH * 4
        return launch(self.module, function, args, grid, threads, shared=shared, **values)


ENGINES = {
    "fp32": Engine("convolution", 2),
    "fp32x3": Engine("convolution_fp32x3", 3),
    "tf32": Engine("convolution_tf32", 3),
    "bf16": Engine("convolution_bf16", 3),
}


@dataclass(frozen=True)
class ConvProblem:
    """The struct of that name in cuda/conv.cuh: an image, windows over it, and groups."""

    images: int
    height: int
    width: int
    channels: int
    rows: int
    columns: int
    outputs: int
    groups: int = 1
    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    out_pitch: int = 0  # elements from one window's outputs to the next one's; 0 if these are all outputs

    @property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1]

    @property
    def windows(self) -> int:
        """Of one image."""
        return self.rows * self.columns

    @property
    def v(self) -> int:
        return width(self.channels, self.outputs, self.out_pitch)

    @property
    def weights(self) -> int:
        """Elements of all groups."""
        return self.groups * self.outputs * self.taps * self.channels

    def struct(self) -> dict[str, int]:
        names = ("images", "height", "width", "channels", "rows", "columns", "outputs")
        values = {name: getattr(self, name) for name in names}
        for what in ("kernel", "stride", "pad", "dilation"):
            values[f"{what}_h"], values[f"{what}_w"] = getattr(self, what)
        values["image_pitch"], values["out_pitch"] = (
            self.channels * self.groups,
            self.out_pitch or self.outputs * self.groups,
        )
        return values


def tile_for(m: int, n: int, repeat: int) -> Tile:
    """The fastest tile for `repeat` matrices of m x n, when each multiprocessor computes one whole tile at a time."""

    def cost(tile: Tile) -> float:
        tiles = ceil_div(m, tile.m) * ceil_div(n, tile.n) * repeat
        return ceil_div(tiles, SMS) * tile.m * tile.n * tile.cost

    return min(TILES, key=cost)


def grid_of(tile: Tile, m: int, n: int, repeat: int) -> tuple[int, int, int]:
    return ceil_div(m, tile.m), ceil_div(n, tile.n), repeat


class Epilogue(NamedTuple):
    """The struct of that name: y = relu(sum + bias + residual) and its mask.  Addresses, 0 for what is left out."""

    bias: int = 0
    residual: int = 0
    mask: int = 0
    relu: bool = False


NO_EPILOGUE = Epilogue()


def conv_fprop(
    engine: Engine, problem: ConvProblem, out: int, image: int, weights: int, epilogue: Epilogue = NO_EPILOGUE
) -> Launch:
    m, n = problem.images * problem.windows, problem.outputs
    tile = tile_for(m, n, problem.groups)
    return engine.launch(
        f"conv_fprop_{tile.name}_v{width(problem.channels)}", "ConvFpropArgs", tile,
        grid_of(tile, m, n, problem.groups), out=out, image=image, weights=weights, problem=problem.struct(),
        by_channels=divider(problem.channels), by_kernel_w=divider(problem.kernel[1]), epilogue=epilogue._asdict(),
    )  # fmt: skip


def conv_dgrad(
    engine: Engine, problem: ConvProblem, image: int, out: int, weights: int, bias: int = 0, accumulate: bool = False
) -> Launch:
    """A strided dgrad is one problem per phase, stride_h x stride_w of them."""
    stride_h, stride_w = problem.stride
    m = problem.images * ceil_div(problem.height, stride_h) * ceil_div(problem.width, stride_w)  # of the largest phase
    n, repeat = problem.channels, problem.groups * stride_h * stride_w
    tile = tile_for(m, n, repeat)
    return engine.launch(
        f"conv_dgrad_{tile.name}_v{problem.v}", "ConvDgradArgs", tile, grid_of(tile, m, n, repeat), image=image,
        out=out, weights=weights, bias=bias, problem=problem.struct(), by_outputs=divider(problem.outputs),
        accumulate=accumulate,
    )  # fmt: skip


class Split(NamedTuple):
    """How a weight gradient is computed: `parts` partial sums over `images_each` images."""

    tile: Tile
    images_each: int
    parts: int


def split_of(problem: ConvProblem) -> Split:
    """The split whose products and additions take least time; fewer parts where equal."""
    m, n = problem.outputs, problem.taps * problem.channels

    def with_tile(tile: Tile) -> tuple[float, Split]:
        tiles = ceil_div(m, tile.m) * ceil_div(n, tile.n) * problem.groups
        wanted = min(problem.images, 2 * SMS // tiles, problem.images * problem.windows // MIN_WINDOWS)
        each = ceil_div(problem.images, max(1, wanted))
        parts = ceil_div(problem.images, each)
        multiply = ceil_div(tiles * parts, SMS) * tile.m * tile.n * tile.cost * each * problem.windows
        add = parts * problem.weights * PART_COST / SMS if parts > 1 else 0
        return multiply + add, Split(tile, each, parts)

    return min((with_tile(tile) for tile in TILES), key=lambda candidate: candidate[0])[1]


def conv_wgrad(
    engine: Engine, problem: ConvProblem, dw: int, out: int, image: int, accumulate: bool, workspace: int,
    split: Split | None = None,
) -> Iterator[Launch]:  # fmt: skip
    """`split` replaces the best one where `problem` is a band of a larger gradient and must sum in its order."""
    tile, images_each, parts = split or split_of(problem)
    grid = grid_of(tile, problem.outputs, problem.taps * problem.channels, problem.groups * parts)
    yield engine.launch(
        f"conv_wgrad_{tile.name}_v{problem.v}", "ConvWgradArgs", tile, grid, dw=dw if parts == 1 else workspace,
        out=out, image=image, problem=problem.struct(), by_window=divider(problem.windows),
        by_columns=divider(problem.columns), by_channels=divider(problem.channels),
        by_kernel_w=divider(problem.kernel[1]), splits=parts, images_each=images_each,
        accumulate=accumulate and parts == 1,
    )  # fmt: skip
    if parts > 1:
        yield launch(
            "convolution", "sum_parts", "PartsArgs", ceil_div(problem.weights, 256), y=dw, parts=workspace,
            count=problem.weights, splits=parts, accumulate=accumulate,
        )  # fmt: skip


def conv_wgrad_bytes(problem: ConvProblem) -> int:
    parts = split_of(problem).parts
    return 4 * parts * problem.weights if parts > 1 else 0
