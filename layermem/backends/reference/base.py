"""The reference backend's kernels in NumPy, one file per layer family: the readable definition of every op.

A kernel is a function (op, call): the typed record, and the arrays of exactly the roles that its op declared, in
Caffe's axes (a 4-D array is an NCHW view of channels-last memory).  A stash that no op reads is absent.  A kernel fills
its outputs in place (`call["y0"][...] = ...`) and does not change inputs.  Arrays may be float32 or float64 (gradient
checks); kernels must not narrow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from layermem.backends.arena import axes_of_caffe as axes_of_caffe
from layermem.backends.registry import KernelRegistry, StepContext, UndeclaredRole
from layermem.ops import CARRY, OpRecord

Array = npt.NDArray[Any]


class ReferenceCall:
    """The arrays of one op by role, the step's context, and the op's name for errors."""

    def __init__(
        self, arrays: Mapping[str, Array], context: StepContext | None = None, *, op: str = "", layer: str = ""
    ):
        self.arrays, self.op, self.layer = dict(arrays), op, layer
        self.context: StepContext = context if context is not None else StepContext()

    def __getitem__(self, role: str) -> Array:
        if role not in self.arrays:
            raise UndeclaredRole(f"op '{self.op}'", (role,), self.arrays)
        return self.arrays[role]

    def __contains__(self, role: str) -> bool:
        return role in self.arrays

    def wants(self, role: str) -> bool:
        """Whether the op computes `role`, or its slice's share of it."""
        return role in self.arrays or role + CARRY in self.arrays

    def all(self, stem: str) -> list[Array]:
        """The arrays of stem0, stem1, .. that the op has, in the order of their numbers."""
        numbered = (role for role in self.arrays if re.fullmatch(stem + r"\d+", role))
        return [self.arrays[role] for role in sorted(numbered, key=lambda role: int(role[len(stem) :]))]

    def subset(self, *roles: str, **others: Array) -> ReferenceCall:
        """A call with some of these roles and further arrays."""
        arrays = {role: self.arrays[role] for role in roles if role in self.arrays}
        return ReferenceCall({**arrays, **others}, self.context, op=self.op, layer=self.layer)


REGISTRY: KernelRegistry[ReferenceCall, None] = KernelRegistry("reference")
kernel = REGISTRY.kernel


def sum_of_items(
    op: OpRecord, call: ReferenceCall, role: str, shape: tuple[int, ...], dtype: npt.DTypeLike, items: Iterable[Array]
) -> Array:
    """The sum over the batch of the contributions `items` to `role`, one item after the other, so that slices that
    carry it have the bits of the whole.  In a slice, the sum of all items so far."""
    if role + CARRY in call:
        total = call[role + CARRY].view(dtype)[: prod(shape)].reshape(shape)
        if op.batch_slice is not None and op.batch_slice.is_first:
            total[...] = 0
    else:
        total = np.zeros(shape, dtype)
    for item in items:
        total += item
    return total


def double_sum(array: Array, axes: int | tuple[int, ...]) -> Array:
    """The sum over some axes in double precision.  The array is converted first: if NumPy converts while it adds, its
    buffer splits the sum at places that depend on the batch."""
    total: Array = array.astype(np.float64).sum(axis=axes)
    return total


def stored(array: Array) -> Array:
    """The array in its memory order: a 4-D array is channels-last."""
    return array.transpose(0, 2, 3, 1) if array.ndim == 4 else array
