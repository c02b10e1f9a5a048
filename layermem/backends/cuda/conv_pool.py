"""A convolution with the MAX pooling of 2 x 2 pixels behind it, in one launch (cuda/conv_pool.cuh), and where it pays.

Rows of the tiles are the pixels of one window after the other.  A window that hangs over the border has rows without a
pixel, which take as long as others.  What warpgroups compute on compute capability 9.0 (warpgroup.py) is apart on every
GPU, since a graph does not depend on that: their kernels have no such epilogue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from layermem.backends.cuda import implicit_gemm, narrow_products, warpgroup
from layermem.backends.cuda.base import CudaCall, itemsize, kernel
from layermem.backends.cuda.direct_problems import is_direct_fprop
from layermem.backends.cuda.families import is_on
from layermem.backends.cuda.implicit_gemm import (
    DRAM_BYTES,
    FPROP_POOL,
    SMS,
    VECTOR,
    Engine,
    Epilogue,
    fprop_struct,
    group_channels,
    windows,
)
from layermem.backends.cuda.launch import Launch, ceil_div, vector_width
from layermem.backends.cuda.weight_tiles import operand_weights
from layermem.backends.registry import narrow_roles, storage_of
from layermem.ops import ConvPool, Pool

TAPS = 4  # rows of a window
BLOBS = ("x0", "y0")


@kernel(ConvPool, "forward", narrow="x0|y0")
def conv_pool_forward(op: ConvPool, call: CudaCall) -> Iterator[Launch]:
    engine = implicit_gemm.engine_of(call, "x0")
    weights, rounding = operand_weights(engine, FPROP_POOL, op.conv.problem, call["w0"], call.workspace)
    yield from rounding
    yield conv_fprop_pool(engine, op, call["y0"], call["argmax"], call["x0"], weights, call["w1"])


def conv_fprop_pool(
    engine: Engine, op: ConvPool, y: int, argmax: int, image: int, weights: int, bias: int = 0
) -> Launch:
    problem, pool = op.conv.problem, op.pool
    channels, outputs = group_channels(problem)
    matrices = problem.n * pooled(pool) * TAPS, outputs, problem.groups
    return engine.launch(
        FPROP_POOL,
        engine.vector_width(problem, channels),
        "ConvFpropPoolArgs",
        matrices,
        prod(problem.kernel) * channels,
        argmax=argmax,
        pooled_h=pool.y.shape[2],
        pooled_w=pool.y.shape[3],
        conv=fprop_struct(problem, y, image, weights, Epilogue(bias, relu=op.conv.relu)),
        bottom_relu=pool.bottom_relu,
    )


def pooled(pool: Pool) -> int:
    """Windows of an image."""
    return prod(pool.y.shape[2:])


def pays(precision: str, op: ConvPool, dtypes: Mapping[str, str]) -> bool:
    """Whether there is a kernel for operands of these types, and it takes no longer than both ops."""
    narrow = narrow_roles(dtypes)
    if not is_on("pool"):
        return False
    if narrow and not narrow_products.takes(precision, op, "forward", dtypes, ()).issuperset(BLOBS):
        return False
    engine = implicit_gemm.engine_for(precision, storage_of(dtypes.values()))
    return _is_covered(engine, op) and _waste(engine, op) <= _saved_bytes(engine, op) / DRAM_BYTES


def _is_covered(engine: Engine, op: ConvPool) -> bool:
    problem, pool = op.conv.problem, op.pool
    channels, outputs = group_channels(problem)
    geometry = {(each.kernel, each.stride, each.pad) for each in pool.windows}
    if geometry != {(2, 2, 0)} or is_direct_fprop(problem, engine.precision) or vector_width(outputs) < VECTOR:
        return False
    if engine.vector_width(problem, channels) < VECTOR:
        return False
    shapes = warpgroup.shapes_name(engine)
    return not shapes or "conv_fprop" not in warpgroup.products_by_warpgroups(shapes, problem)


def _waste(engine: Engine, op: ConvPool) -> float:
    """Cycles of an image's rows without a pixel, in the tile that takes least for a row."""
    problem = op.conv.problem
    channels, outputs = group_channels(problem)
    stages = ceil_div(prod(problem.kernel) * channels, engine.depth)
    each = min(
        ceil_div(outputs, tile.n) * engine.paces[tile.name][-1] / (tile.m * len(engine.paces[tile.name]) * SMS)
        for tile in engine.own_tiles(FPROP_POOL, engine.vector_width(problem, channels))
    )
    return (pooled(op.pool) * TAPS - windows(problem)) * problem.groups * stages * each


def _saved_bytes(engine: Engine, op: ConvPool) -> int:
    """Of an image, which the pooling alone would read; that they are not written either is not counted."""
    return windows(op.conv.problem) * op.conv.problem.k * itemsize(engine.storage)
