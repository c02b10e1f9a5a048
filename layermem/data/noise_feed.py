"""Noise in place of a data set, for runs and plans of nets whose data is not there."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from layermem.data.feed import BATCH, Batch, Feed, Shapes
from layermem.data.position import State
from layermem.errors import InputError
from layermem.utils.seeds import generator


class NoiseFeed(Feed):
    """Noise that replaces a data set: the first top in [-1, 1), the others in [0, 1), and indices in [0, limit).

    limits   for each top the exclusive limit of its indices; None for a top of numbers
    labels   for each top the labels of its boxes; None for a top without boxes
    """

    counts = BATCH

    def __init__(
        self,
        shapes: Shapes,
        limits: Sequence[int | None],
        noise: int,
        key: tuple[int | str, ...],
        labels: Sequence[tuple[int, ...] | None] = (),
    ):
        self.labels = tuple(labels) or (None,) * len(shapes)
        self.shapes, self.limits, self.noise, self.key = shapes, tuple(limits), noise, ("noise", noise, *key)

    def _next(self) -> Batch:
        batch = [self._draw(index) for index in range(len(self.shapes))]
        self.position += 1
        return batch

    def _draw(self, index: int) -> np.ndarray:
        draw, shape, limit = generator(*self.key, index, self.position), self.shapes[index], self.limits[index]
        labels = self.labels[index]
        if labels is not None:
            return self._boxes(draw, shape, labels)
        if limit is not None:
            return draw.integers(0, limit, shape).astype(np.float32)
        values = draw.random(shape, np.float32)
        if not index:
            values *= 2
            values -= 1
        return values

    def _boxes(self, draw: np.random.Generator, shape: tuple[int, ...], labels: tuple[int, ...]) -> np.ndarray:
        """Rows of item, label, instance, left, top, right, bottom, difficult; each item has the same number of rows."""
        rows, items = prod(shape[:-1]), self.shapes[0][0]
        low, size = draw.random((rows, 2)) * 0.5, 0.1 + 0.4 * draw.random((rows, 2))
        item, label, zeros = np.arange(rows) * items // rows, draw.choice(labels, rows), np.zeros(rows)
        return np.column_stack([item, label, zeros, low, low + size, zeros]).astype(np.float32).reshape(shape)

    def state(self) -> State:
        return {**super().state(), "noise": self.noise}

    def check(self, state: State) -> None:
        super().check(state)
        if state.get("noise") != self.noise:
            was = f"noise:{state['noise']}" if "noise" in state else "other data"
            raise InputError(f"the snapshot was written with {was}, not with noise:{self.noise}; use the same data")
