"""Bytes on the move: batches into the net, blobs into other layouts and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from layermem._native import cpu
from layermem.layers import Tensor
from layermem.layers.data import FEEDS
from layermem.runtime.cpu.base import Args, Launch, binds
from layermem.runtime.cpu.elements import copy_unless_same
from layermem.runtime.reference.base import axes_of_caffe


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


# -- Flatten and Reshape -----------------------------------------------------------------------------------------------


def order(out: Tensor, x: Tensor) -> tuple[int, int, int] | None:
    """(images, rows, columns) of the transpose that takes x, in memory, to `out`; None for what is none.

    Numbers keep Caffe's order, in which 4-D blobs are not stored."""
    if len(x.shape) == 4 and len(out.shape) != 4:
        n, c, h, w = x.shape
        return n, h * w, c
    if len(out.shape) == 4 and len(x.shape) != 4:
        n, c, h, w = out.shape
        return n, c, h * w
    return None


def renamed(a: Args, out: str, x: str, to: Tensor, source: Tensor) -> list[Launch] | None:
    if a.layer.view:
        return copy_unless_same(a, out, x)
    turn = order(to, source)
    return None if turn is None else [cpu.transpose(*turn, out=a[out], x=a[x], accumulate=a.adds(out))]


@binds("Flatten.forward", "Reshape.forward")
def renamed_forward(a: Args) -> list[Launch] | None:
    return renamed(a, "y0", "x0", a.layer.tops[0], a.layer.bottoms[0])


@binds("Flatten.backward", "Reshape.backward")
def renamed_backward(a: Args) -> list[Launch] | None:
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
