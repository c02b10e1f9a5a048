"""Sums for a BatchNorm that a dgrad leaves, and the order in which they are added up."""

from __future__ import annotations

import numpy as np

from layermem.ops import NORM_OPERANDS, Conv
from tests.backends.cuda.conv_moments import Blobs, tree
from tests.backends.cuda.harness import Memory, Way, run_op
from tests.cases.fused import FUSED


def gradient_sums(dy: np.ndarray, x: np.ndarray, norm: dict[str, np.ndarray]) -> np.ndarray:
    """Of dy and x [rows][C], as cuda/gradient_sums.cuh has them: never -0."""
    y = (x - norm["norm_mean"]) * norm["norm_inv_std"]
    if "norm_factor" in norm:
        dy = np.where(y * norm["norm_factor"] + norm["norm_bias"] > 0, dy, np.float32(0))
    units = -(-len(x) // 128)
    terms = np.zeros((units * 128, 2, x.shape[1]), np.float32)
    terms[: len(x), 0], terms[: len(x), 1] = dy, dy * y
    groups = [[tree(unit[first : first + 32]) for first in range(0, 128, 32)] for unit in np.split(terms, units)]
    return np.stack([((a + b) + (c + d)) + np.float32(0) for a, b, c, d in groups])


def norm_operands(rows: int, channels: int, relu: bool, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """x and the numbers of each channel, by role."""
    like = dict.fromkeys(NORM_OPERANDS[1 : 5 if relu else 3], (channels,)) | {"norm_x": (rows, channels)}
    return {role: (rng.standard_normal(shape) + 0.5).astype(np.float32) for role, shape in like.items()}


def dgrad(
    name: str,
    way: Way,
    rng: np.random.Generator,
    *,
    relu: bool = True,
    accumulate: bool = False,
    masked: bool = False,
    word: str = "",
) -> tuple[np.ndarray, np.ndarray, int]:
    """The sums of what a dgrad writes as they are stated, those that it leaves, and how many launches more it takes for
    them; blobs are of the type `word`."""
    problem, memory, blobs = FUSED["dgrad + sums"][name], Memory(), Blobs(word)
    rows, channels = problem.n * problem.h * problem.w, problem.c
    operands = {
        "dy0": blobs.stored(memory, rng.standard_normal(problem.maps.shape)),
        "w0": memory.stored(rng.standard_normal(problem.filter.shape), np.float32),
    }
    if masked:
        bits = rng.integers(0, 256, -(-rows * channels // 8), np.uint8)
        operands["bottom_mask"] = memory.stored(bits, np.uint8)
    norm = {role: memory.stored(each, np.float32) for role, each in norm_operands(rows, channels, relu, rng).items()}
    norm["norm_x"] = blobs.stored(memory, norm["norm_x"])
    before = rng.standard_normal((rows, channels))
    alone, together = (blobs.stored(memory, before) for _ in range(2))
    sums = memory.bytes(problem.norm_sums.nbytes).view(np.float32).reshape(problem.norm_sums.shape)
    adds = ["dx0"] if accumulate else []
    without = run_op(Conv(problem), "dgrad", {**operands, "dx0": alone}, accumulates=adds, way=way, storage=word)
    made = {**operands, **norm, "dx0": together, "norm_sums": sums}
    launches = run_op(Conv(problem), "dgrad", made, accumulates=adds, way=way, storage=word)
    memory.check()
    np.testing.assert_array_equal(together, alone)
    stated = gradient_sums(blobs.floats(alone), blobs.floats(norm["norm_x"]), norm)
    return stated, sums, launches - without
