"""Weights of products of 16-bit blobs: rounded by a separate launch; for warpgroups as tiles that have the layout of
shared memory (cuda/weight_tiles.cuh), so that a stage of a tile is a single copy.

Only on its GPU is it known whether warpgroups compute a product.  So the workspace of a product that they may compute
fits both forms, whose sizes differ if tiles are not full.
"""

from __future__ import annotations

from math import prod

from layermem.backends.cuda.products.gemm_tiles import (
    FPROP,
    PACKED_BF16,
    WIDENING,
    GemmEngine,
    group_channels,
    takes_narrow,
)
from layermem.backends.cuda.products.warpgroup import (
    PACKED_PRECISION,
    lacks_bias,
    products_by_warpgroups,
    runs_by_warpgroups,
)
from layermem.backends.cuda.support.half import narrow
from layermem.backends.cuda.support.launch import Launch, ceil_div, launch
from layermem.ops import ITEMSIZE, NARROW, ConvProblem
from layermem.utils.units import aligned

COLUMNS = 256  # of a tile of B, as in cuda/weight_tiles.cuh; a stage has PACKED_BF16.depth k's
BLOCKS = 2  # per stage, as in cuda/weight_tiles.cu


def rounded_weights_bytes(
    precision: str, problem: ConvProblem, product: str, word: str, *, has_bias: bool = False
) -> int:
    """Bytes of the workspace for the rounded weights of `product`, FPROP or DGRAD, of blobs of this type."""
    if precision in WIDENING:
        return 0
    step = "forward" if product == FPROP else "dgrad"
    if not takes_narrow(precision, problem, step, word, wide_image=False):
        return 0
    rounded = aligned(ITEMSIZE[NARROW[word]] * problem.filter.count)
    if product not in products_by_warpgroups(PACKED_PRECISION, problem) or lacks_bias(product, has_bias):
        return rounded
    return max(rounded, aligned(tiles_bytes(problem, product)))


def operand_weights(
    engine: GemmEngine, product: str, problem: ConvProblem, weights: int, rounded: int, *, has_bias: bool = False
) -> tuple[int, list[Launch]]:
    """The address at which the engine reads the weights, and the launches that round them to `rounded`, if needed."""
    if not engine.is_packed:
        return weights, []
    if runs_by_warpgroups(engine, product, has_bias):
        return rounded, [tile_weights(rounded, weights, problem, product)]
    return rounded, [narrow(rounded, weights, problem.filter.count, NARROW[engine.storage])]


def tiles_shape(problem: ConvProblem, product: str) -> tuple[int, int, int]:
    """Groups, tiles along a group's columns, and stages of a tile."""
    channels, outputs = group_channels(problem)
    columns, depth = (outputs, channels) if product == FPROP else (channels, outputs)
    return problem.groups, ceil_div(columns, COLUMNS), ceil_div(prod(problem.kernel) * depth, PACKED_BF16.depth)


def tiles_bytes(problem: ConvProblem, product: str) -> int:
    return ITEMSIZE[NARROW[PACKED_BF16.storage]] * prod(tiles_shape(problem, product)) * COLUMNS * PACKED_BF16.depth


def tile_weights(tiles: int, weights: int, problem: ConvProblem, product: str) -> Launch:
    """Write the tiles of the product, with zeros beyond its operand."""
    (channels, outputs), (groups, across, stages) = group_channels(problem), tiles_shape(problem, product)
    return launch(
        "weight_tiles",
        "tile_rows" if product == FPROP else "tile_columns",
        "TileWeightsArgs",
        (stages * BLOCKS, across, groups),
        tiles=tiles,
        weights=weights,
        outputs=outputs,
        taps=prod(problem.kernel),
        channels=channels,
    )
