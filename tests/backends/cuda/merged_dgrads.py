"""Two dgrads of one blob as one op, beside the two ops."""

from __future__ import annotations

import numpy as np

from layermem.ops import MERGED_OPERANDS, Conv, ConvProblem, MergedDgrads, Window
from tests.backends.cuda.harness import Memory, Way, run_op


def problem_of(
    c: int, k: int, size: tuple[int, int], kernel: int = 1, stride: int = 1, pad: int = 0, dilation: int = 1
) -> ConvProblem:
    rows, columns = (Window(each, kernel, stride, pad, dilation) for each in size)
    return ConvProblem(3, c, k, rows, columns)


PAIRS = {  # the first one, and the one that is added to it
    "of one pixel": (problem_of(72, 40, (9, 8)), problem_of(72, 24, (9, 8))),
    "columns of two tiles": (problem_of(136, 8, (6, 5)), problem_of(136, 72, (6, 5))),
    "with a stride": (problem_of(64, 24, (15, 12), 1, 2), problem_of(64, 72, (15, 12), 1, 2)),
    "in other phases": (problem_of(40, 16, (12, 9), 3, 2, 1), problem_of(40, 48, (12, 9), 1, 2)),
    "with pixels of no window": (problem_of(24, 16, (11, 10), 2, 3), problem_of(24, 16, (11, 10), 1, 3, 1)),
    "of maps of taps": (problem_of(16, 40, (7, 7), 3, 1, 2, 2), problem_of(16, 8, (7, 7), 5, 1, 2)),
    "one float at a time": (problem_of(12, 5, (7, 6)), problem_of(12, 8, (7, 6))),
}


def stored(memory: Memory, values: np.ndarray, storage: str) -> np.ndarray:
    """In fp32, or the upper halves of these: bfloat16."""
    wide = np.asarray(values, np.float32)
    return memory.stored(
        (wide.view(np.uint32) >> 16).astype(np.uint16) if storage else wide, np.uint16 if storage else np.float32
    )


def merged(
    name: str, way: Way, rng: np.random.Generator, *, accumulate: bool = False, masked: bool = False, storage: str = ""
) -> tuple[np.ndarray, np.ndarray, int]:
    """dx0 of two dgrads: as one op, and one after the other; and the launches of the op."""
    first, last = PAIRS[name]
    memory, operands = Memory(), []
    for problem in (first, last):
        dy, w = (rng.standard_normal(each.shape) for each in (problem.maps, problem.filter))
        operands.append({"dy0": stored(memory, dy, storage), "w0": memory.stored(w, np.float32)})
    before = rng.standard_normal(first.image.shape)
    together, apart = (stored(memory, before, storage) for _ in range(2))
    bits = rng.integers(0, 256, -(-before.size // 8), np.uint8)
    mask = {"bottom_mask": memory.stored(bits, np.uint8)} if masked else {}
    adds = ["dx0"] if accumulate else []
    how = {"way": way, "storage": storage}
    both = {**operands[1], **dict(zip(MERGED_OPERANDS, operands[0].values(), strict=True))}
    launches = run_op(MergedDgrads(last, first), "dgrad", {**both, "dx0": together, **mask}, accumulates=adds, **how)
    run_op(Conv(first), "dgrad", {**operands[0], "dx0": apart}, accumulates=adds, **how)
    run_op(Conv(last), "dgrad", {**operands[1], "dx0": apart, **mask}, accumulates=["dx0"], **how)
    memory.check()
    return together, apart, launches
