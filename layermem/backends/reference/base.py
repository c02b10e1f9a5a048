"""The reference device's kernels: NumPy, one file per layer family, the living definition of every op.

A kernel is a function (layer, b).  `b` holds the arrays of exactly the roles that its op declared, in Caffe's axes
(a 4-D array is an NCHW view of channels-last memory); `b.x` is short for `b.x0`, `b.xs` the list of all bottoms.
A stash that nobody will read is None.  A kernel fills its outputs in place (`b.y[...] = ...`) and leaves inputs alone.
Arrays may be float32 or float64 (gradient checks); kernels must not narrow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from layermem.backends.arena import axes_of_caffe as axes_of_caffe

KERNELS: dict[str, Callable[[Any, Buffers], None]] = {}


class Buffers:
    """The arrays of one op by role, and what changes from step to step (seed, step, rate ...)."""

    def __init__(self, arrays: Mapping[str, np.ndarray], context: Mapping[str, Any] | None = None):
        self._arrays = dict(arrays)
        self.context: Mapping[str, Any] = context if context is not None else {}

    def __getattr__(self, role: str) -> Any:
        if role.startswith("__"):
            raise AttributeError(role)
        arrays = self._arrays
        if role in arrays:
            return arrays[role]
        if role + "0" in arrays:
            return arrays[role + "0"]
        if role in self.context:
            return self.context[role]
        if role.endswith("s") and role[:-1] in ("x", "y", "w", "dx", "dy", "dw", "h"):
            return [self._arrays[r] for r in sorted_roles(arrays, role[:-1])]
        if re.fullmatch(r"d?[xyw]\d*", role):
            if role.startswith("d"):
                return None  # a gradient that nobody wants
            raise AttributeError(f"this op did not declare '{role}'; it has {sorted(arrays)}")
        return None  # a stash that nobody reads

    def has(self, role: str) -> bool:
        return role in self._arrays


def sorted_roles(arrays: Mapping[str, Any], stem: str) -> list[str]:
    return sorted((r for r in arrays if re.fullmatch(stem + r"\d+", r)), key=lambda r: int(r[len(stem) :]))


def kernel(*names: str) -> Callable:
    """Register the reference kernel of ops "Type.step"."""

    def register(function: Callable[[Any, Buffers], None]) -> Callable[[Any, Buffers], None]:
        for name in names:
            KERNELS[name] = function
        return function

    return register


def stored(array: np.ndarray) -> np.ndarray:
    """The array in the order of its memory: a 4-D one is channels-last."""
    return array.transpose(0, 2, 3, 1) if array.ndim == 4 else array
