"""Blobs with the API of pycaffe: `.data` and `.diff` in Caffe's order and shape, for inputs, blobs and parameters.

blob of an Input layer     `.data` is an array of the host that the next forward pass reads
other blob                 `.data` is a view of the arena if the host can reach it, otherwise a copy
parameter                  `.data` is a view of the arena, or an array that is written back before the next pass
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import index
from typing import Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from layermem.errors import InputError, not_copyable
from layermem.utils.fixed import refusal
from layermem.utils.similar import did_you_mean
from layermem.utils.text import count_text

Array = npt.NDArray[Any]
V = TypeVar("V")
AXES = 4  # axes of blobs before 2014: num, channels, height and width


class Blob(ABC):
    """An array of a net with its gradient.

    data    the values, in Caffe's order; float32 (float64 on a device that computes in it)
    diff    the gradient, of the same shape: zeros before a backward pass
    shape   Caffe's shape; num, channels, height, width are its first four extents, 1 for absent ones
    """

    def __init__(self, name: str):
        self.name = name

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("data", "diff"):
            raise AttributeError(f"the {name} of a blob is an array to write to; use blob.{name}[...] = x")
        super().__setattr__(name, value)

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]: ...

    @property
    @abstractmethod
    def data(self) -> Array: ...

    @property
    @abstractmethod
    def diff(self) -> Array: ...

    @property
    def count(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def num(self) -> int:
        return self._extent(0)

    @property
    def channels(self) -> int:
        return self._extent(1)

    @property
    def height(self) -> int:
        return self._extent(2)

    @property
    def width(self) -> int:
        return self._extent(3)

    def _extent(self, axis: int) -> int:
        if len(self.shape) > AXES:
            raise InputError(f"blob '{self.name}' has {len(self.shape)} axes, and num to width name four; use shape")
        return self.shape[axis] if axis < len(self.shape) else 1

    def reshape(self, *shape: int) -> None:
        """Give an input blob another shape, which `net.reshape()` propagates through the net."""
        if tuple(shape) != self.shape:
            raise InputError(f"blob '{self.name}' is no input of the net, so its shape follows; reshape an input")

    def __reduce__(self) -> NoReturn:
        raise not_copyable(f"blob '{self.name}' of a net", "copy its values: numpy.array(blob.data)")

    def __repr__(self) -> str:
        return f"<Blob '{self.name}': {'x'.join(map(str, self.shape)) or 'scalar'}>"


class NetBlob(Blob):
    """A blob of a net, made of functions for its parts."""

    def __init__(
        self,
        name: str,
        shape: Callable[[], tuple[int, ...]],
        data: Callable[[], Array],
        diff: Callable[[], Array],
        reshape: Callable[[tuple[int, ...]], None] | None = None,
    ):
        super().__init__(name)
        self._shape, self._data, self._diff, self._reshape = shape, data, diff, reshape

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape()

    @property
    def data(self) -> Array:
        return self._data()

    @property
    def diff(self) -> Array:
        return self._diff()

    def reshape(self, *shape: int) -> None:
        extents: Sequence[Any] = shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
        try:
            wanted = tuple(map(index, extents))
        except TypeError:
            raise InputError(f"blob '{self.name}' cannot have the shape {extents}; give whole numbers") from None
        if self._reshape is None:
            super().reshape(*wanted)
        else:
            self._reshape(wanted)


class UnknownName(InputError, KeyError):
    """A net has no blob or layer of that name."""


class Named(Mapping[str, V]):
    """An ordered mapping by name, whose error for an unknown name suggests a known one.

    name, write   how code knows the mapping, and where it writes to the values of an item, as for fixed.refusal()
    """

    def __init__(self, what: str, values: Mapping[str, V], advice: str, name: str, write: str = ""):
        self._what, self._values, self._advice = what, dict(values), advice
        self._name, self._write = name, write

    def __getitem__(self, name: str) -> V:
        if name not in self._values:
            hint = did_you_mean(str(name), self._values) or self._advice
            raise UnknownName(f"the net has no {self._what} '{name}'; {hint}")
        return self._values[name]

    def __setitem__(self, name: str, value: object) -> NoReturn:
        raise refusal(self._name, name, self._write)

    def __delitem__(self, name: str) -> NoReturn:
        raise refusal(self._name, name, self._write)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __repr__(self) -> str:
        return f"<{count_text(len(self), self._what)}: {' '.join(self._values)}>"
