"""A dgrad that ends with the backward of a ReLU, beside the two ops."""

from __future__ import annotations

import numpy as np

from layermem.ops import Conv, ReluMask
from tests.backends.cuda.harness import Memory, Way, run_op
from tests.cases.fused import FUSED


def stored(memory: Memory, values: np.ndarray, storage: str) -> np.ndarray:
    """In fp32, or the upper halves of these: bfloat16."""
    wide = np.asarray(values, np.float32)
    return memory.stored(
        (wide.view(np.uint32) >> 16).astype(np.uint16) if storage else wide, np.uint16 if storage else np.float32
    )


def masked_dgrad(
    name: str, accumulate: bool, way: Way, rng: np.random.Generator, storage: str = ""
) -> tuple[np.ndarray, np.ndarray]:
    """dx0 of a dgrad and the ReLU backward behind it: as one op, and one after the other."""
    problem, memory = FUSED["dgrad + mask"][name], Memory()
    dy, w, before = (rng.standard_normal(each.shape) for each in (problem.maps, problem.filter, problem.image))
    before[0, 0, 0, 0] = np.nan  # is cleared too, and not multiplied
    bits = rng.integers(0, 256, -(-before.size // 8), np.uint8)
    bits[0] &= 0xFE
    operands = {"dy0": stored(memory, dy, storage), "w0": memory.stored(w, np.float32)}
    together, apart = (stored(memory, before, storage) for _ in range(2))
    mask = memory.stored(bits, np.uint8)
    adds, how = ["dx0"] if accumulate else [], {"way": way, "storage": storage}
    run_op(Conv(problem), "dgrad", {**operands, "dx0": together, "bottom_mask": mask}, accumulates=adds, **how)
    run_op(Conv(problem), "dgrad", {**operands, "dx0": apart}, accumulates=adds, **how)
    run_op(ReluMask(problem.image), "relu_backward", {"dy0": apart, "mask": mask}, **how)
    return together, apart
