"""Moments that a convolution leaves, and the order in which they are added up."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from layermem.backends.narrow import narrowed, widened
from layermem.ops import NARROW, Conv, ConvProblem
from tests.backends.cuda.harness import Memory, Way, run_op


def tree(values: np.ndarray) -> np.ndarray:
    """Sums of 32 rows, those half of them apart first."""
    while len(values) > 1:
        half = len(values) // 2
        values = values[:half] + values[half:]
    return values[0]


def moments(x: np.ndarray) -> np.ndarray:
    """Of x [rows][C], as cuda/moments.cuh has it."""
    made = []
    for begin in range(0, len(x), 128):
        groups = []
        for first in range(begin, min(begin + 128, len(x)), 32):
            here = x[first : first + 32]
            there = np.zeros((32, x.shape[1]), np.float32)
            there[: len(here)] = here
            count = np.float32(len(here))
            mean = tree(there) / count
            distances = there - mean
            distances[len(here) :] = 0
            groups.append((count, mean, tree(distances * distances)))
        while len(groups) > 1:
            groups = [merge(*groups[i : i + 2]) for i in range(0, len(groups), 2)]
        made.append(np.stack(groups[0][1:]))
    return np.stack(made)


def merge(a, b=None):
    if b is None:
        return a
    count, delta = a[0] + b[0], b[1] - a[1]
    share = b[0] / count
    return count, a[1] + delta * share, a[2] + b[2] + delta * delta * a[0] * share


def operands(problem: ConvProblem, rng: np.random.Generator, memory: Memory, blobs: Blobs) -> dict[str, np.ndarray]:
    like = {"w0": problem.filter.shape, "w1": (problem.k,)}
    parameters = {role: memory.stored(rng.standard_normal(shape) + 1, np.float32) for role, shape in like.items()}
    return {"x0": blobs.stored(memory, rng.standard_normal(problem.image.shape) + 1), **parameters}


class Blobs(NamedTuple):
    """Blobs in fp32, or in the type of 16 bits that `word` names."""

    word: str = ""

    def stored(self, memory: Memory, values: np.ndarray) -> np.ndarray:
        """A blob of these values, in Caffe's axes."""
        floats = np.float32(values)
        bits = narrowed(floats, NARROW[self.word]) if self.word else floats
        return memory.stored(bits, bits.dtype)

    def empty(self, memory: Memory, shape: tuple[int, ...]) -> np.ndarray:
        kind = np.dtype(np.uint16 if self.word else np.float32)
        return memory.bytes(prod(shape) * kind.itemsize).view(kind).reshape(shape)

    def floats(self, blob: np.ndarray) -> np.ndarray:
        return widened(blob, NARROW[self.word]) if self.word else blob


def forward(
    problem: ConvProblem, way: Way, rng: np.random.Generator, word: str = "", wide_image: bool = False
) -> tuple[np.ndarray, np.ndarray, int]:
    """y0 [rows][K], its moments, and the number of launches; blobs are of the type `word`, or y0 alone."""
    memory, blobs = Memory(), Blobs(word)
    y = blobs.empty(memory, problem.maps.stored)
    found = memory.bytes(problem.moments.nbytes).view(np.float32).reshape(problem.moments.shape)
    arrays = {**operands(problem, rng, memory, Blobs() if wide_image else blobs), "y0": y, "moments": found}
    launches = run_op(Conv(problem, bias=True), "forward", arrays, way=way, storage=word)
    memory.check()
    return blobs.floats(y).reshape(-1, problem.k), found, launches
