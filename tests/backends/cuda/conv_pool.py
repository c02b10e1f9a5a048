"""A convolution with the MAX pooling behind it as one op, beside the two ops."""

from __future__ import annotations

import numpy as np

from layermem.backends.narrow import narrowed
from layermem.ops import NARROW, Conv, ConvPool, ConvProblem, Pool, Tensor, Window
from tests.backends.cuda.harness import PLAIN, Memory, Way, run_op

Arrays = dict[str, np.ndarray]


def problem_of(
    c: int,
    k: int,
    size: tuple[int, int],
    kernel: int = 3,
    stride: int = 1,
    pad: int = 1,
    dilation: int = 1,
    groups: int = 1,
    n: int = 3,
) -> ConvProblem:
    rows, columns = (Window(each, kernel, stride, pad, dilation) for each in size)
    return ConvProblem(n, c, k, rows, columns, groups)


PROBLEMS = {
    "even": problem_of(8, 16, (8, 6)),
    "odd": problem_of(16, 24, (7, 9)),
    "columns of two tiles": problem_of(8, 140, (5, 4)),
    "rows of several tiles": problem_of(8, 12, (27, 21), n=2),
    "with a stride": problem_of(16, 8, (15, 12), 3, 2),
    "dilated": problem_of(8, 8, (11, 10), 3, 1, 2, 2),
    "of one pixel": problem_of(72, 20, (9, 8), 1, 1, 0),
    "in groups": problem_of(16, 24, (9, 6), groups=2),
    "one window": problem_of(8, 8, (2, 1)),
}


def records(problem: ConvProblem, *, relu: bool = True, bottom_relu: bool = True) -> ConvPool:
    """The pooling has windows of 2 x 2, two apart, as many as Caffe makes them."""
    rows, columns = (Window(size, 2, 2) for size in problem.maps.shape[2:])
    y = Tensor((problem.n, problem.k, -(-rows.size // 2), -(-columns.size // 2)))
    pool = Pool("MAX", problem.maps, y, rows, columns, bottom_relu=bottom_relu)
    return ConvPool(Conv(problem, bias=True, relu=relu), pool)


class Operands:
    """What both read: of few numbers, so that elements of a window are equal, and some that are no numbers."""

    def __init__(self, problem: ConvProblem, rng: np.random.Generator, word: str = ""):
        self.memory, self.word, self.problem = Memory(), word, problem
        x = rng.integers(-3, 4, problem.image.shape) / 2
        x[rng.random(x.shape) < 0.01] = np.nan
        x[rng.random(x.shape) < 0.01] = np.inf
        w = rng.integers(-2, 3, problem.filter.shape) / 64 * (1 + rng.integers(0, 2, problem.filter.shape) / 256)
        bias = rng.integers(-1, 2, problem.k) / 8
        self.roles = {
            "x0": self.stored(x),
            "w0": self.memory.stored(w, np.float32),
            "w1": self.memory.stored(bias, np.float32),
        }

    def stored(self, values: np.ndarray) -> np.ndarray:
        bits = narrowed(np.float32(values), NARROW[self.word]) if self.word else np.float32(values)
        return self.memory.stored(bits, bits.dtype)

    def results(self, both: ConvPool, way: Way = PLAIN, *, pooled: bool, has_argmax: bool = True) -> tuple[Arrays, int]:
        """What is written, and the launches."""
        made = {"y0": self.stored(np.full(both.pool.y.shape, np.nan))}
        if has_argmax:
            made["argmax"] = self.memory.stored(np.full(both.pool.y.shape, 77), np.uint8)
        if pooled:
            launches = run_op(both, "forward", {**self.roles, **made}, way=way, storage=self.word)
        else:
            between = self.stored(np.full(both.pool.x.shape, np.nan))
            conv = {**self.roles, "y0": between}
            launches = run_op(both.conv, "forward", conv, way=way, storage=self.word)
            launches += run_op(both.pool, "forward", {"x0": between, **made}, way=way, storage=self.word)
        self.memory.check()
        return made, launches
