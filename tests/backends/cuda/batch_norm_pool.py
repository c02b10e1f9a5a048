"""A BatchNorm with the MAX pooling behind it, beside the two ops."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from layermem.backends.narrow import narrowed
from layermem.ops import NARROW, BatchNormScale, Pool
from tests.backends.cuda.harness import Memory, Way, layer_of, run_op
from tests.layers.harness import batch_norm_scale

Arrays = dict[str, np.ndarray]
CASES = {
    "overlapping": ("kernel_size: 3 stride: 2", (2, 20, 13, 7)),
    "two by two": ("kernel_size: 2 stride: 2", (3, 8, 7, 6)),
    "padded, hanging over": ("kernel_size: 3 stride: 2 pad: 1", (2, 4, 8, 10)),
    "many windows over a pixel": ("kernel_size: 5 stride: 1 pad: 2", (1, 8, 9, 7)),
    "gaps": ("kernel_h: 1 kernel_w: 2 stride: 3", (2, 36, 13, 13)),
    "many units": ("kernel_size: 3 stride: 2", (5, 4, 17, 16)),
}


def records(name: str, relu: bool) -> tuple[BatchNormScale, Pool]:
    settings, shape = CASES[name]
    pool = layer_of(f'type: "Pooling" pooling_param {{ {settings} }}', shape).record
    norm = batch_norm_scale(shape, relu=relu).record
    assert isinstance(norm, BatchNormScale) and isinstance(pool, Pool)
    return norm, pool


class Steps:
    """What the op, and both apart, read; x is of few numbers, so that elements of a window are equal."""

    def __init__(self, name: str, way: Way, word: str, rng: np.random.Generator, *, relu: bool = True):
        self.norm, self.pool = records(name, relu)
        self.way, self.word, self.memory = way, word, Memory()
        shape, channels = self.norm.x.shape, self.norm.x.shape[1]
        self.x = self.stored(rng.integers(-4, 5, shape) / 2)
        self.dy = self.stored(rng.standard_normal(self.pool.y.shape))
        self.before = rng.standard_normal(shape)
        w3, w4 = rng.standard_normal(channels), rng.standard_normal(channels) / 2
        self.scale = {"w3": self.floats(w3), "w4": self.floats(w4)}
        self.empty = dict.fromkeys(("mean", "inv_std", "dw3", "dw4"), channels)

    def stored(self, values: np.ndarray) -> np.ndarray:
        bits = narrowed(np.float32(values), NARROW[self.word]) if self.word else np.float32(values)
        return self.memory.stored(bits, bits.dtype)

    def floats(self, values: np.ndarray) -> np.ndarray:
        return self.memory.stored(values, np.float32)

    def run(self, record: object, step: str, arrays: Arrays, adds: Collection[str] = ()) -> None:
        run_op(record, step, arrays, accumulates=adds, way=self.way, storage=self.word)  # type: ignore[arg-type]

    def results(self, *, pooled: bool, adds: Collection[str] = ()) -> Arrays:
        """All that forward, recompute and backward write."""
        made = {role: self.floats(np.full(shape, 0.25)) for role, shape in self.empty.items()}
        averages = {
            f"w{i}": self.floats(np.full(size, 0.5)) for i, size in enumerate((*[self.norm.norm.channels] * 2, 1))
        }
        y, again = (self.stored(np.full(self.pool.y.shape, np.nan)) for _ in range(2))
        argmax, its = (self.memory.stored(np.full(self.pool.y.shape, 77), np.uint8) for _ in range(2))
        dx = self.stored(self.before)
        statistics = {role: made[role] for role in ("mean", "inv_std")}
        gradients = {"dx0": dx, "dw3": made["dw3"], "dw4": made["dw4"]}
        if pooled:
            record = replace(self.norm, pool=self.pool)
            forward = {"x0": self.x, **self.scale, **statistics}
            self.run(record, "forward", {**forward, **averages, "y0": y, "argmax": argmax})
            self.run(record, "recompute", {**forward, "y0": again, "argmax": its})
            self.run(record, "backward", {**forward, "argmax": argmax, "dy0": self.dy, **gradients}, adds)
        else:
            between, slope = (self.stored(np.full(self.norm.x.shape, np.nan)) for _ in range(2))
            forward = {"x0": self.x, **self.scale, **statistics}
            self.run(self.norm, "forward", {**forward, **averages, "y0": between})
            for top, index in ((y, argmax), (again, its)):
                self.run(self.pool, "forward", {"x0": between, "y0": top, "argmax": index})
            self.run(self.pool, "backward", {"dy0": self.dy, "argmax": argmax, "dx0": slope})
            self.run(self.norm, "backward", {**forward, "dy0": slope, **gradients}, adds)
        self.memory.check()
        return {"y0": y, "argmax": argmax, "again": again, "its": its, "dx0": dx, **made, **averages}
