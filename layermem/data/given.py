"""Arrays of a user in place of data: read from a file of NumPy, and delivered in batches.

Each epoch of training has an order of its own, which the seed decides; tests keep the order of the arrays.  Items
follow each other without a gap: a batch at the end of the arrays goes on with the first items of the next epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from layermem.data.array_items import load_arrays
from layermem.data.feed import Batch, Feed, Shapes
from layermem.data.position import State, number_in
from layermem.errors import InputError
from layermem.utils.seeds import generator
from layermem.utils.text import shape_text

ENDING = ".npz"


def names_arrays(data: object) -> bool:
    """Whether `data`, as a user gives it, is a file of arrays or the arrays themselves."""
    return isinstance(data, Mapping) or (isinstance(data, str) and data.lower().endswith(ENDING))


def read_arrays(data: str | Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The arrays in an .npz file, or those given, by name; InputError for values that are no numbers."""
    path = data if isinstance(data, str) else None
    loaded = load_arrays(data) if isinstance(data, str) else data
    arrays = {name: np.asarray(values) for name, values in loaded.items()}
    for name, array in arrays.items():
        if array.dtype.kind not in "fiub" or not array.ndim or not len(array):
            what = f"has {shape_text(array.shape)} of type {array.dtype} as '{name}'"
            raise InputError(f"{what}; give numbers, with an axis of items first", path=path)
    return arrays


class GivenFeed(Feed):
    """Batches of `arrays`, one for each top of `shapes`; shuffled by `key` in each epoch, unless that is None."""

    counts = "sample"

    def __init__(self, shapes: Shapes, arrays: Mapping[str, np.ndarray], key: tuple[int | str, ...] | None):
        self.shapes, self.arrays, self.key = shapes, tuple(arrays.values()), key
        self.items = len(self.arrays[0])
        self._order: tuple[int, np.ndarray] = -1, np.arange(self.items)  # the epoch, and its order of items
        for (name, array), shape in zip(arrays.items(), shapes, strict=True):
            if array.shape[1:] != shape[1:]:
                is_, wanted = (shape_text(("N", *each[1:])) for each in (array.shape, shape))
                raise InputError(f"takes {wanted} for '{name}', and is given {is_}; reshape the array")

    def _next(self) -> Batch:
        positions = np.arange(self.position, self.position + self.shapes[0][0])
        picked = np.concatenate([self._of_epoch(int(epoch), positions) for epoch in np.unique(positions // self.items)])
        self.position += len(positions)
        return [np.ascontiguousarray(array[picked], np.float32) for array in self.arrays]

    def _of_epoch(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        """The items at those of `positions` that lie in an epoch."""
        places: np.ndarray = positions[positions // self.items == epoch] % self.items
        if self.key is None:
            return places
        if self._order[0] != epoch:
            self._order = epoch, generator(*self.key, "epoch", epoch).permutation(self.items)
        return np.take(self._order[1], places)

    def state(self) -> State:
        return {**super().state(), "items": self.items}

    def check(self, state: State) -> None:
        super().check(state)
        if number_in(state, "items") != self.items:
            what = f"the snapshot was written with {state['items']} items of data, and the arrays have {self.items}"
            raise InputError(f"{what}; use the same data")
