"""Bytes on the move: batches into the net, blobs into other layouts and sizes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from typing import Any

import numpy as np

from layermem._native import cpu
from layermem.backends.cpu.base import Args, Launch, binds
from layermem.backends.cpu.elements import copy_unless_same
from layermem.backends.reference.base import axes_of_caffe
from layermem.layers import Tensor
from layermem.layers.data import FEEDS


@binds(*(f"{kind}.forward" for kind in FEEDS))
def feed(a: Args) -> list[Launch]:
    """The batch of a step is found, and may lie anywhere, when the step runs."""
    stored = [a.arrays[f"y{i}"] for i in range(len(a.layer.tops))]

    def run() -> None:
        for y, given in zip(stored, a.context["batch"][a.layer.name], strict=True):
            put(y, np.asarray(given))

    return [run]


def put(stored: np.ndarray, given: np.ndarray) -> None:
    """Numbers in Caffe's order into a blob in its own."""
    home = axes_of_caffe(stored)
    plain = given.dtype == np.float32 == stored.dtype and given.flags.c_contiguous and given.shape == home.shape
    if plain and stored.ndim == 4:
        n, c, h, w = given.shape
        cpu.transpose(n, c, h * w, out=stored.ctypes.data, x=given.ctypes.data)()
    else:
        home[...] = given


@binds("Net.output")
def output(a: Args) -> list[Launch]:
    """A blob goes to the host under its name, with Caffe's axes."""
    blob, stored, context = a.layer, a.arrays["x0"], a.context

    def run() -> None:
        context["results"][blob] = taken(stored)

    return [run]


def taken(stored: np.ndarray) -> np.ndarray:
    """Numbers in their own order into a new array in Caffe's."""
    home = axes_of_caffe(stored)
    if stored.ndim != 4 or stored.dtype != np.float32 or not stored.size:
        return np.array(home, order="C")
    n, c, h, w = home.shape
    found = np.empty(home.shape, np.float32)
    cpu.transpose(n, h * w, c, out=found.ctypes.data, x=stored.ctypes.data)()
    return found


# -- the same elements in another order --------------------------------------------------------------------------------
#
# Elements keep Caffe's order, in which 4-D blobs are not stored.


def padded(nbytes: int) -> int:
    return (nbytes + 255) // 256 * 256


def interleaved(t: Tensor) -> bool:
    """Whether memory has another order than Caffe."""
    return len(t.shape) == 4 and t.shape[1] > 1 and t.shape[2] * t.shape[3] > 1


def reorder_bytes(to: Tensor, source: Tensor) -> int:
    """Scratch of `reordered`: one copy in Caffe's order, where neither side has it."""
    return padded(to.nbytes) if interleaved(to) and interleaved(source) and not to.ordered_like(source) else 0


def reordered(out: int, to: Tensor, x: int, source: Tensor, scratch: int, accumulate: bool = False) -> list[Launch]:
    """Launches that bring the elements of `source`, at x, to where `to` has them in memory, at out."""
    if to.ordered_like(source):
        return [cpu.map("scale", to.count, out=out, a=x, p=1.0, accumulate=accumulate)]
    between = scratch if interleaved(to) and interleaved(source) else x
    launches: list[Launch] = []
    if interleaved(source):
        n, c, h, w = source.shape
        if not interleaved(to):
            return [cpu.transpose(n, h * w, c, out=out, x=x, accumulate=accumulate)]
        launches.append(cpu.transpose(n, h * w, c, out=between, x=x))
    n, c, h, w = to.shape
    return [*launches, cpu.transpose(n, c, h * w, out=out, x=between, accumulate=accumulate)]


def arranged_bytes(source: Tensor, to: Tensor) -> int:
    return 0 if source.ordered_like(to) else padded(to.nbytes) + reorder_bytes(to, source)


def arranged(a: Args, role: str, source: Tensor, to: Tensor, at: int) -> tuple[int, list[Launch]]:
    """Where `role` lies in the order of `to`, and the launches that bring it there: into scratch, from byte `at` on,
    where it does not lie so already."""
    if source.ordered_like(to):
        return a[role], []
    room = a.scratch + at
    return room, reordered(room, to, a[role], source, room + padded(to.nbytes))


def renamed_scratch(layer: Any, roles: Collection[str]) -> int:
    return reorder_bytes(layer.tops[0], layer.bottoms[0])


def renamed(a: Args, out: str, x: str, to: Tensor, source: Tensor) -> list[Launch]:
    if a.layer.view:
        return copy_unless_same(a, out, x)
    return reordered(a[out], to, a[x], source, a.scratch, a.adds(out))


@binds("Flatten.forward", "Reshape.forward", scratch=renamed_scratch)
def renamed_forward(a: Args) -> list[Launch]:
    return renamed(a, "y0", "x0", a.layer.tops[0], a.layer.bottoms[0])


@binds("Flatten.backward", "Reshape.backward", scratch=renamed_scratch)
def renamed_backward(a: Args) -> list[Launch]:
    return renamed(a, "dx0", "dy0", a.layer.bottoms[0], a.layer.tops[0])


# -- Interp and Crop ---------------------------------------------------------------------------------------------------


def grid(layer: Any) -> dict[str, Any]:
    n, c, h, w = layer.bottoms[0].shape
    rows, columns = layer.rows, layer.columns
    return {
        "n": n, "c": c, "size": (h, w), "out": (rows.out, columns.out), "first": (rows.offset, columns.offset),
        "part": (rows.size, columns.size),
    }  # fmt: skip


@binds("Interp.forward")
def interp_forward(a: Args) -> list[Launch]:
    return [cpu.interp_forward(**grid(a.layer), y=a["y0"], x=a["x0"])]


@binds("Interp.backward")
def interp_backward(a: Args) -> list[Launch]:
    return [cpu.interp_backward(**grid(a.layer), dx=a["dx0"], dy=a["dy0"], accumulate=a.adds("dx0"))]


def in_memory(axes: Sequence[int]) -> list[int]:
    """Numbers per axis, in the order in which the axes are stored."""
    return [axes[0], axes[2], axes[3], axes[1]] if len(axes) == 4 else list(axes)


def strides(shape: Sequence[int]) -> list[int]:
    return [prod(shape[i + 1 :]) for i in range(len(shape))]


def window(layer: Any) -> tuple[list[int], list[int], list[int], int]:
    """Shape of the part that Crop keeps, strides in it and in the whole, and where it begins: floats."""
    part, whole = in_memory(layer.tops[0].shape), strides(in_memory(layer.bottoms[0].shape))
    begin = sum(offset * step for offset, step in zip(in_memory(layer.offsets), whole))
    return part, strides(part), whole, begin


@binds("Crop.forward")
def crop_forward(a: Args) -> list[Launch]:
    part, inner, whole, begin = window(a.layer)
    return [cpu.copy_block(part, out=a["y0"], out_strides=inner, x=a["x0"] + 4 * begin, x_strides=whole)]


@binds("Crop.backward")
def crop_backward(a: Args) -> list[Launch]:
    part, inner, whole, begin = window(a.layer)
    clear = [] if a.adds("dx0") else [cpu.map("fill", a.count("dx0"), out=a["dx0"], p=0.0)]
    at = a["dx0"] + 4 * begin
    adds = a.adds("dx0")
    return [*clear, cpu.copy_block(part, out=at, out_strides=whole, x=a["dy0"], x_strides=inner, accumulate=adds)]
