"""Feeds: an input layer of a net as a stream of batches with a position that can be saved.

    feed.shapes        of the tops, before anything else is read
    feed.next()        a float32 array for each top, shaped NCHW
    feed.state()       where the next batch begins; restore(state) goes back there, to the same bits
    feed.close()

Same seed, same layer, same position: same batch.  `open_feed` (opening.py) makes them from a net's layers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from layermem.data.hdf5_source import Hdf5Source
from layermem.data.list_source import ImageListSource
from layermem.data.lmdb_source import LmdbSource
from layermem.data.transform import Transform
from layermem.errors import InputError
from layermem.layers.fillers import check_filler, fill, is_constant
from layermem.proto.schema import FillerParameter

Shapes = tuple[tuple[int, ...], ...]


class Feed(ABC):
    """Batches of one input layer, in an order that its key decides."""

    shapes: Shapes
    path: str | None = None  # of the net, for errors
    layer: str | None = None

    def next(self) -> list[np.ndarray]:
        """The next batch: float32 arrays of `shapes`, for the caller to read."""
        try:
            return self._next()
        except InputError as error:
            raise error.at(path=self.path, layer=self.layer) from None

    @abstractmethod
    def _next(self) -> list[np.ndarray]: ...

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Where the next batch begins, in values that JSON can hold."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Go to where `state` was taken."""

    def close(self) -> None:  # noqa: B027  most feeds hold nothing
        """Give back files and threads; the feed is not used afterwards."""


class ImageFeed(Feed):
    """Data and ImageData: images through a transform, and labels if there is a second top."""

    def __init__(self, source: LmdbSource | ImageListSource, transform: Transform, batch: int, tops: int):
        self.source, self.transform, self.batch, self.tops = source, transform, batch, tops
        self.shapes = ((batch, *transform.shape(source.first_shape())), (batch,))[:tops]
        self._sample = 0  # images yielded so far: the transform's decisions belong to their numbers

    def _next(self) -> list[np.ndarray]:
        images, labels = self.source.read(self.batch)
        data = self.transform(images, self._sample)
        if data.shape != self.shapes[0]:
            is_, was = ("x".join(map(str, shape[1:])) for shape in (data.shape, self.shapes[0]))
            raise InputError(f"has images of {is_} where the first was {was}; resize them, or set crop_size")
        self._sample += self.batch
        return [data, labels][: self.tops]

    def state(self) -> dict[str, Any]:
        return {"sample": self._sample, **self.source.state()}

    def restore(self, state: dict[str, Any]) -> None:
        self._sample = int(state["sample"])
        self.source.restore(state)

    def close(self) -> None:
        self.source.close()


class Hdf5Feed(Feed):
    """HDF5Data: each top is a dataset, as it is."""

    def __init__(self, source: Hdf5Source, batch: int):
        self.source, self.batch = source, batch
        self.shapes = tuple((batch, *shape) for shape in source.row_shapes)

    def _next(self) -> list[np.ndarray]:
        return self.source.read(self.batch)

    def state(self) -> dict[str, Any]:
        return self.source.state()

    def restore(self, state: dict[str, Any]) -> None:
        self.source.restore(state)

    def close(self) -> None:
        self.source.close()


class DummyFeed(Feed):
    """DummyData: constant tops are filled once, the others anew for each batch, keyed by its number."""

    def __init__(self, shapes: Shapes, fillers: Sequence[Any], key: tuple[int | str, ...]):
        self.shapes, self.key = shapes, (*key, "dummy")
        if len(fillers) not in (0, 1, len(shapes)):
            raise InputError(f"gives {len(fillers)} data_filler for {len(shapes)} tops; give one, or one for each")
        for filler in fillers:
            check_filler(filler)
        self.fillers = [fillers[index % len(fillers)] if fillers else FillerParameter() for index in range(len(shapes))]
        self._batch = 0
        self._fixed = {index: self._fill(index) for index, each in enumerate(self.fillers) if is_constant(each)}

    @property
    def fixed(self) -> bool:
        """Whether all batches are the same."""
        return len(self._fixed) == len(self.shapes)

    def _next(self) -> list[np.ndarray]:
        self._batch += 1
        return [self._fixed[i] if i in self._fixed else self._fill(i) for i in range(len(self.shapes))]

    def state(self) -> dict[str, Any]:
        return {"batch": self._batch}

    def restore(self, state: dict[str, Any]) -> None:
        self._batch = int(state["batch"])

    def _fill(self, index: int) -> np.ndarray:
        values = fill(self.fillers[index], self.shapes[index], *self.key, index, self._batch)
        values.flags.writeable = False  # a constant top is handed out again and again
        return values


class ArrayFeed(Feed):
    """Input and MemoryData: rows of arrays that the caller gives, round and round."""

    def __init__(self, shapes: Shapes, tops: Sequence[str]):
        self.shapes, self.tops = shapes, tuple(tops)
        self._arrays: list[np.ndarray] = []
        self._row = 0

    def give(self, *arrays: np.ndarray) -> None:
        """An array for each top, of whole batches along its first axis; float32 arrays are not copied."""
        if len(arrays) != len(self.shapes):
            raise InputError(f"takes {len(self.shapes)} arrays ({', '.join(self.tops)}), not {len(arrays)}")
        taken = []
        for top, array, shape in zip(self.tops, arrays, self.shapes):
            batches, left = divmod(np.size(array), prod(shape))
            if left or not batches or (np.ndim(array) == len(shape) and np.shape(array)[1:] != shape[1:]):
                raise InputError(f"takes whole batches of {shape} for '{top}', not an array of {np.shape(array)}")
            taken.append(np.ascontiguousarray(array, np.float32).reshape(batches, *shape))
        if len({len(array) for array in taken}) > 1:
            counts = ", ".join(f"{len(array)} for '{top}'" for top, array in zip(self.tops, taken))
            raise InputError(f"takes as many batches for each top, not {counts}")
        self._arrays, self._row = taken, 0

    def _next(self) -> list[np.ndarray]:
        if not self._arrays:
            tops = ", ".join(self.tops)
            raise InputError(f"has no data yet; give arrays for {tops} (Solver.give), or let a data layer read files")
        batch = [array[self._row % len(array)] for array in self._arrays]
        self._row += 1
        return batch

    def state(self) -> dict[str, Any]:
        return {"batch": self._row}

    def restore(self, state: dict[str, Any]) -> None:
        self._row = int(state["batch"])
