"""The work of convolutions that device cpu computes in Winograd's form: less arithmetic, and transformed weights.

F(m x m, 3x3) computes a tile of m x m outputs with (m + 2)^2 products per pair of channels.  Images and weights are
transformed before the products, and the sums of products after them.  Each launch of fprop and dgrad transforms the
weights, so slices of few images repeat that cost.

source  layermem/native/cpu/kernels/winograd.cpp, with the same choice of m by the shape of the whole batch
"""

from __future__ import annotations

from layermem.graph.ops import Op
from layermem.ops import Conv, ConvProblem, Deconv

WINDOWS = (3, 3), (1, 1), (1, 1)  # kernel, stride and dilation
MIN_CHANNELS = 32  # of a group
MAX_PAD = 2
SMALL_TILES, LARGE_TILES = 64, 48  # with fewer tiles, no transform pays; with fewer 4x4 tiles, m = 4 does not
GAIN = 0.9  # share of the products of 2x2 tiles above which 4x4 tiles do not pay


def winograd_tile(problem: ConvProblem, items: int) -> int:
    """m of the form in which a convolution of `items` images is computed; 0 for a direct convolution."""
    of_group = problem.c // problem.groups, problem.k // problem.groups
    if (problem.kernel, problem.stride, problem.dilation) != WINDOWS or min(of_group) < MIN_CHANNELS:
        return 0
    if max(problem.pad) > MAX_PAD or _tiles(problem, items, 2) < SMALL_TILES:
        return 0
    is_large = _tiles(problem, items, 4) >= LARGE_TILES
    return 4 if is_large and _products(problem, items, 4) <= GAIN * _products(problem, items, 2) else 2


def winograd_work(op: Op) -> tuple[int, int] | None:
    """FLOPs of the products, and bytes of the transformed weights that are written and read again; None for an op that
    is not computed in this form."""
    record = op.record
    if not isinstance(record, (Conv, Deconv)):
        return None
    problem = record.problem
    pairs = op.flops // (2 * problem.macs)  # 0 for an op that computes only the bias gradient
    items = (
        problem.n if record.batch_slice is None else problem.n // record.batch_slice.count * record.batch_slice.items
    )
    m = winograd_tile(problem, items) if pairs else 0
    if not m:
        return None
    channels = pairs * problem.c * problem.k // problem.groups
    transformed_bytes = 0 if op.step == "wgrad" else 2 * 4 * (m + 2) ** 2 * channels
    return 2 * _products(problem, problem.n, m) * channels, transformed_bytes


def _tiles(problem: ConvProblem, items: int, m: int) -> int:
    return items * -(-problem.out_h // m) * -(-problem.out_w // m)


def _products(problem: ConvProblem, items: int, m: int) -> int:
    """Products of each pair of channels."""
    return (m + 2) ** 2 * _tiles(problem, items, m)
