"""The interface of Python layers: the base class, and the blobs that its methods see.

    class Double(layermem.PythonLayer):             or caffe.Layer
        def setup(self, bottom, top): ...           once; self.param_str, self.phase; self.blobs.add_blob(..)
        def reshape(self, bottom, top):             after setup, and before every forward
            top[0].reshape(*bottom[0].shape)
        def forward(self, bottom, top):
            top[0].data[...] = 2 * bottom[0].data
        def backward(self, top, propagate_down, bottom):
            bottom[0].diff[...] = 2 * top[0].diff

source  Caffe include/caffe/layers/python_layer.hpp, python/caffe/_caffe.cpp
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from math import prod
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from layermem.utils.fixed import Fixed

Array = npt.NDArray[Any]
DATA, DIFF = "data", "diff"
OUTSIDE = "which only its methods may read"  # why an array is absent


class HasArrays(Protocol):
    """A blob of a net."""

    @property
    def data(self) -> Array: ...

    @property
    def diff(self) -> Array: ...


class ContractError(Exception):
    """A user method uses a blob in a way that is impossible; the text follows "layer 'name' "."""


class Blob:
    """A blob in a method of a Python layer: shape, data and diff, as float32 arrays in Caffe's order.

    label   its name in the method, such as top[0]
    shape   None until it is set
    """

    def __init__(self, label: str, shape: tuple[int, ...] | None = None, *, may_reshape: bool = False):
        self._label, self._shape, self._may_reshape = label, shape, may_reshape
        self._arrays: dict[str, Array] = {}
        self._absent: dict[str, str] = {}  # data or diff -> the reason why it is absent, with a remedy
        self._shown: HasArrays | None = None  # the parameter of a net that this blob is, outside of methods
        self._planning = True  # arrays are made on demand

    # -- for layers ------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape or ()

    @property
    def count(self) -> int:
        return 0 if self._shape is None else prod(self._shape)

    num = property(lambda self: self._axis(0))
    channels = property(lambda self: self._axis(1))
    height = property(lambda self: self._axis(2))
    width = property(lambda self: self._axis(3))

    @property
    def data(self) -> Array:
        return self._array(DATA)

    @data.setter
    def data(self, value: object) -> None:
        self._set(DATA, value)

    @property
    def diff(self) -> Array:
        return self._array(DIFF)

    @diff.setter
    def diff(self, value: object) -> None:
        self._set(DIFF, value)

    def reshape(self, *dims: int) -> None:
        try:
            shape = tuple(operator.index(d) for d in dims)
        except TypeError:
            text = ", ".join(map(repr, dims))
            raise ContractError(
                f"calls {self._label}.reshape({text[:80]}), whose sizes are not whole numbers; give integers"
            ) from None
        if min(shape, default=0) < 0:
            raise ContractError(f"calls {self._label}.reshape{shape}; give sizes from 0")
        if shape == self._shape:
            return
        if not self._may_reshape:
            raise ContractError(f"reshapes {self._label}, which is not its own; reshape tops alone")
        if not self._planning:
            before, after = ("x".join(map(str, s)) or "no axes" for s in (self.shape, shape))
            raise ContractError(
                f"reshapes {self._label} from {before} to {after} during a step; sizes are planned before the first "
                "one, from setup and reshape: give the largest there"
            )
        self._shape = shape
        self._arrays.clear()

    def __repr__(self) -> str:
        return f"<{self._label}: {'x'.join(map(str, self.shape)) or 'scalar'}>"

    # -- inside ----------------------------------------------------------------------------------------------------

    def _axis(self, index: int) -> int:
        """The size of one of Caffe's four axes; 1 beyond the last axis."""
        if len(self.shape) > 4:
            raise ContractError(f"reads an axis of {self._label} by name, which has {len(self.shape)}; use its shape")
        return self.shape[index] if index < len(self.shape) else 1

    def show(self, parameter: HasArrays) -> None:
        """Outside of methods, data and diff are from now on the arrays of `parameter`, the first that is given."""
        self._shown = self._shown or parameter

    def _array(self, kind: str) -> Array:
        if self._absent.get(kind) == OUTSIDE and self._shown is not None:
            return self._shown.data if kind == DATA else self._shown.diff
        if kind in self._absent:
            raise ContractError(f"reads {self._label}.{kind}, {self._absent[kind]}")
        if kind not in self._arrays:
            self._arrays[kind] = np.zeros(self.shape, np.float32)
        return self._arrays[kind]

    def _set(self, kind: str, value: object) -> None:
        if value is not self._array(kind):  # the array differs, unlike after `blob.data += 1`
            name = f"{self._label}.{kind}"
            raise ContractError(f"assigns to {name}; write into it: {name}[...] = values")


class BlobList(Fixed[Blob]):
    """The list bottom, top or blobs in a method."""

    def refusal(self, key: int) -> ContractError:
        what = f"assigns to the list {self.name}; write into its blobs: {self.name}[{key}].data[...] = values"
        return ContractError(what)


class Blobs(BlobList):
    """The parameters of a layer: `add_blob(*shape)` in setup adds one; its data are the initial values."""

    closed = False  # True after setup

    def __init__(self) -> None:
        super().__init__("blobs")

    def add_blob(self, *shape: int) -> None:
        if self.closed:
            raise ContractError("adds a blob after setup; add all of them there")
        blob = Blob(f"blobs[{len(self)}]", may_reshape=True)
        blob.reshape(*shape)
        blob._may_reshape = False
        list.append(self, blob)


class PythonLayer:
    """Base of layers written in Python; a module of Caffe's finds it as `caffe.Layer`.

    param_str    the text in the prototxt (param_str_ in old modules)
    phase        0 TRAIN, 1 TEST
    blobs        its parameters

    recomputable     whether forward may run again, from the same bottoms, with the same result and no side effect: a
                     plan may then drop its tops and recompute them
    backward_reads   the data that backward reads, of "bottom" and "top"; others need not be kept
    """

    recomputable: ClassVar[bool] = False
    backward_reads: ClassVar[Iterable[str]] = ("bottom", "top")
    type = "Python"
    blobs: Blobs
    param_str: str
    param_str_: str
    phase: int

    def __init__(self, *arguments: object, **more: object):
        """Accept the LayerParameter and ignore it, like Caffe's class."""

    def setup(self, bottom: list[Blob], top: list[Blob]) -> None:
        """Check the bottoms, read param_str, add parameters."""

    def reshape(self, bottom: list[Blob], top: list[Blob]) -> None:
        """Give every top its shape, unless setup does."""

    def forward(self, bottom: list[Blob], top: list[Blob]) -> None:
        raise NotImplementedError(f"class {type(self).__name__} has no forward")

    def backward(self, top: list[Blob], propagate_down: list[bool], bottom: list[Blob]) -> None:
        raise NotImplementedError(f"class {type(self).__name__} has no backward")
