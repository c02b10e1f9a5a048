"""Tiles of weights by their kernels, and as NumPy lays them out."""

from __future__ import annotations

from math import prod

import numpy as np

from layermem.backends.cuda.products.gemm_tiles import FPROP, group_channels
from layermem.backends.cuda.products.weight_tiles import tile_weights, tiles_bytes
from layermem.backends.narrow import narrowed
from layermem.ops import ConvProblem
from tests.backends.cuda.harness import CONTEXT, Memory, Way
from tests.emulator import emulate

COLUMNS, DEPTH, PANEL, CHUNK = 256, 64, 64, 8


def run_tile_weights(weights: np.ndarray, problem: ConvProblem, product: str, way: Way) -> np.ndarray:
    """The tiles, as bits.  weights: [outputs, taps, channels of a group]."""
    memory = Memory()
    buffers = {"tiles": memory.bytes(tiles_bytes(problem, product)), "weights": memory.bytes(weights.nbytes)}
    buffers["weights"].view(np.float32)[:] = weights.reshape(-1)
    places = way.gpu.placed(buffers) if way.gpu else {role: array.ctypes.data for role, array in buffers.items()}
    launch = tile_weights(places["tiles"], places["weights"], problem, product)
    if way.gpu:
        way.gpu.launch(launch, CONTEXT)
        way.gpu.bring_back()
    else:
        kernels = emulate.load(f"cuda/{launch.module}.cu", way.mode, order=way.order, copies=way.copies)
        packed = launch.packed(CONTEXT)
        kernels.launch(launch.function, launch.grid, launch.block, packed, launch.shared, buffers=[*buffers.values()])
    memory.check()
    return buffers["tiles"].view(np.uint16)


def weights_of(problem: ConvProblem, rng: np.random.Generator) -> np.ndarray:
    return np.float32(rng.standard_normal((problem.k, prod(problem.kernel), group_channels(problem)[0])))


def tiled(weights: np.ndarray, problem: ConvProblem, product: str) -> np.ndarray:
    """What run_tile_weights must leave: chunk j of row r of eight at j ^ r."""
    channels, outputs = group_channels(problem)
    bits = narrowed(weights, "bfloat16").reshape(problem.groups, outputs, -1, channels)
    if product == FPROP:  # [group][tile][row][stage][chunk] of k
        rows = _filled(bits.reshape(problem.groups, outputs, -1), (1, COLUMNS), (2, DEPTH))
        stages = rows.reshape(problem.groups, -1, COLUMNS, rows.shape[2] // DEPTH, DEPTH).transpose(0, 1, 3, 2, 4)
    else:  # [group][stage of outputs][k][tap][tile][panel][column]
        rows = _filled(bits, (3, COLUMNS))
        panels = rows.reshape(problem.groups, outputs // DEPTH, DEPTH, bits.shape[2], -1, COLUMNS // PANEL, PANEL)
        stages = panels.transpose(0, 4, 3, 1, 5, 2, 6)
    chunks = stages.reshape(-1, 8, PANEL // CHUNK, CHUNK)
    swizzled = np.empty_like(chunks)
    for row in range(8):
        for chunk in range(PANEL // CHUNK):
            swizzled[:, row, chunk ^ row] = chunks[:, row, chunk]
    return swizzled.reshape(-1)


def _filled(array: np.ndarray, *multiples: tuple[int, int]) -> np.ndarray:
    """With zeros up to multiples along axes."""
    padding = [(0, 0)] * array.ndim
    for axis, multiple in multiples:
        padding[axis] = (0, -array.shape[axis] % multiple)
    return np.pad(array, padding)
