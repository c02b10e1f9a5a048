"""The three sums of cuda/sliding.cuh: which tile computes them, and how a weight gradient is split.

Both are chosen by shape alone, for a card of 128 multiprocessors whatever card it is, so that every card, budget and
run adds in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from layermem.backends.cuda.launch import Launch, ceil_div, divider, launch, width

SMS = 128  # multiprocessors that a product is spread over
DEPTH = 32  # of a tile, as in cuda/gemm.cuh
LEAST_WINDOWS = 256  # that one split of a weight gradient sums over
PART_COST = 50  # multiply-adds that take as long as writing and reading one element of a part


class Tile(NamedTuple):
    m: int
    n: int
    threads: int  # in fp32; the products on tensor cores have four warps in every tile
    cost: float  # of an element, relative to the largest tile: smaller ones load more for each product

    @property
    def name(self) -> str:
        return f"{self.m}x{self.n}"


TILES = (Tile(128, 128, 256, 1.0), Tile(128, 64, 128, 1.1), Tile(64, 64, 64, 1.2), Tile(128, 32, 128, 1.4))


class Engine(NamedTuple):
    """A module that holds the three sums in one precision, and the stages of its ring."""

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
class Sliding:
    """The struct of that name in cuda/sliding.cuh: an image, windows over it, and groups."""

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
    out_pitch: int = 0  # elements from one window's outputs to the next one's, where they are not all there are

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
    """The tile that computes `repeat` matrices of m x n soonest, when each multiprocessor takes whole tiles in turn."""

    def cost(tile: Tile) -> float:
        tiles = ceil_div(m, tile.m) * ceil_div(n, tile.n) * repeat
        return ceil_div(tiles, SMS) * tile.m * tile.n * tile.cost

    return min(TILES, key=cost)


def grid_of(tile: Tile, m: int, n: int, repeat: int) -> tuple[int, int, int]:
    return ceil_div(m, tile.m), ceil_div(n, tile.n), repeat


class Epilogue(NamedTuple):
    """The struct of that name: what becomes of a sum on its way out.  Addresses, 0 for what is left out."""

    bias: int = 0
    added: int = 0
    mask: int = 0
    rectify: bool = False


NOTHING = Epilogue()


def correlate(engine: Engine, g: Sliding, out: int, image: int, weights: int, then: Epilogue = NOTHING) -> Launch:
    m, v = g.images * g.windows, width(g.channels)
    tile = tile_for(m, g.outputs, g.groups)
    return engine.launch(
        f"correlate_{tile.name}_v{v}", "CorrelateArgs", tile, grid_of(tile, m, g.outputs, g.groups), out=out,
        image=image, weights=weights, g=g.struct(), by_channels=divider(g.channels), by_kernel_w=divider(g.kernel[1]),
        then=then._asdict(),
    )  # fmt: skip


def spread(engine: Engine, g: Sliding, image: int, out: int, weights: int, bias: int = 0, adds: bool = False) -> Launch:
    classes = g.stride[0] * g.stride[1]
    m = g.images * ceil_div(g.height, g.stride[0]) * ceil_div(g.width, g.stride[1])  # of the largest class
    tile = tile_for(m, g.channels, g.groups * classes)
    return engine.launch(
        f"spread_{tile.name}_v{g.v}", "SpreadArgs", tile, grid_of(tile, m, g.channels, g.groups * classes),
        image=image, out=out, weights=weights, bias=bias, g=g.struct(), by_outputs=divider(g.outputs), accumulate=adds,
    )  # fmt: skip


class Split(NamedTuple):
    """How a weight gradient is computed: `parts` partial sums over `images_each` images."""

    tile: Tile
    images_each: int
    parts: int


def split_of(g: Sliding) -> Split:
    """The split whose products and additions of parts take least time; one with fewer parts where equal."""
    m, n = g.outputs, g.taps * g.channels

    def with_tile(tile: Tile) -> tuple[float, Split]:
        tiles = ceil_div(m, tile.m) * ceil_div(n, tile.n) * g.groups
        wanted = min(g.images, 2 * SMS // tiles, g.images * g.windows // LEAST_WINDOWS)
        each = ceil_div(g.images, max(1, wanted))
        parts = ceil_div(g.images, each)
        multiply = ceil_div(tiles * parts, SMS) * tile.m * tile.n * tile.cost * each * g.windows
        add = parts * g.weights * PART_COST / SMS if parts > 1 else 0
        return multiply + add, Split(tile, each, parts)

    return min((with_tile(tile) for tile in TILES), key=lambda found: found[0])[1]


def weigh(
    engine: Engine, g: Sliding, dw: int, out: int, image: int, adds: bool, scratch: int, split: Split | None = None
) -> Iterator[Launch]:
    """`split`: in place of the best one, where `g` is a part of a larger gradient and sums as all of that does."""
    tile, images_each, parts = split or split_of(g)
    yield engine.launch(
        f"weigh_{tile.name}_v{g.v}", "WeighArgs", tile,
        grid_of(tile, g.outputs, g.taps * g.channels, g.groups * parts), dw=dw if parts == 1 else scratch, out=out,
        image=image, g=g.struct(), by_window=divider(g.windows), by_columns=divider(g.columns),
        by_channels=divider(g.channels), by_kernel_w=divider(g.kernel[1]), splits=parts, images_each=images_each,
        accumulate=adds and parts == 1,
    )  # fmt: skip
    if parts > 1:
        yield launch(
            "convolution", "sum_parts", "PartsArgs", ceil_div(g.weights, 256), y=dw, parts=scratch, count=g.weights,
            splits=parts, accumulate=adds,
        )  # fmt: skip


def weigh_bytes(g: Sliding) -> int:
    parts = split_of(g).parts
    return 4 * parts * g.weights if parts > 1 else 0
