"""The arrays that a net reads: those that a user gives to it, or writes to its blobs."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from layermem.errors import InputError
from layermem.interactive.batching import BatchedNet
from layermem.interactive.blob import Array
from layermem.interactive.inputs import as_numbers, check_names
from layermem.layers.data import StatedFeed
from layermem.solver.feeds import Feeds
from layermem.utils.exclusive import Lock, exclusive
from layermem.utils.text import shape_text


class FedNet(BatchedNet):
    """A net whose Input, DummyData and MemoryData layers read arrays of a user; other input layers read files."""

    _lock: Lock
    _seed: int
    _feeds: Feeds | None
    _input_arrays: dict[str, Array]  # memory of Input layers, by blob, which a smaller shape uses in part, as in Caffe
    _number = 0  # of the net among those of its feeds

    def _has_own_shape(self, name: str) -> bool:
        """Whether a user may give the blob another shape: that of an Input or DummyData layer."""
        return isinstance(self._makers[name].nodes[0].layer, StatedFeed)

    def _give_inputs(self) -> None:
        for layer in self._definition.layers:
            if layer.type == "Input":
                self._open_feeds.give(0, layer.name, [self._input(name) for name in layer.message.top])

    @property
    def _open_feeds(self) -> Feeds:
        if self._feeds is None:
            self._feeds = Feeds((self._definition,), self._seed)
            self._feeds.on_change, self._feeds.runs_ahead = self._change_shapes, True
        return self._feeds

    @exclusive
    def _input(self, name: str) -> Array:
        """The array that the next forward pass reads."""
        shape = self.blobs[name].shape
        count, memory = prod(shape), self._input_arrays.get(name)
        if memory is None or memory.size < count:
            self._input_arrays[name] = memory = np.zeros(count, np.float32)
        return memory[:count].reshape(shape)

    def _given(self, name: str) -> Array | None:
        """The array of a blob that every forward pass reads, and to which a user may write; None for other blobs."""
        layer = self._makers[name]
        if layer.type == "Input":
            return self._input(name)
        return self._constant(name) if layer.type == "DummyData" else None

    def _constant(self, name: str) -> Array | None:
        """The array that each batch of an Input or DummyData layer has, unless a later layer overwrites the blob."""
        layer = self._makers[name]
        if not self._has_own_shape(name) or len(self._definition.versions[name]) > 1:
            return None
        return self._open_feeds.constant(self._number, layer.name, list(layer.message.top).index(name))

    def _set_inputs(self, inputs: Mapping[str, Any]) -> None:
        if not inputs:
            return
        check_names(inputs, self.inputs, "input")
        self.reshape()
        for name, value in inputs.items():
            array, shape = as_numbers(name, value), self.blobs[name].shape
            if array.shape != shape:
                new = ", ".join(map(str, array.shape))
                advice = "give an array of that shape"
                if len(array.shape) == len(shape) and array.shape[1:2] == shape[1:2] and array.size:
                    advice = f"call net.reshape({name}=({new})) first"
                raise InputError(
                    f"input '{name}' has the shape {shape_text(shape)}, and was given {shape_text(array.shape)}; "
                    f"{advice}, or use net.predict for any number of items"
                )
        for name, value in inputs.items():
            self._input(name)[...] = value

    @exclusive
    def set_input_arrays(self, data: npt.ArrayLike, labels: npt.ArrayLike) -> None:
        """Set the arrays of the MemoryData layer: whole batches, which forward passes read in turn, cyclically."""
        self._open_feeds.give(0, self._memory_data(), [np.asarray(data), np.asarray(labels)])

    def _memory_data(self) -> str:
        """The name of the MemoryData layer."""
        for layer in self._definition.layers:
            if layer.type == "MemoryData":
                return layer.name
        raise InputError("set_input_arrays needs a MemoryData layer, and the net has none; use net.forward(data=x)")

    def reshape(self) -> None:
        raise NotImplementedError

    def _change_shapes(self, number: int, shapes: Mapping[str, tuple[int, ...]]) -> None:
        raise NotImplementedError
