"""Shape layers: copies between Caffe's axes, of 16-bit elements without conversion.

A copy onto itself is left out, so that a view costs nothing.
"""

from __future__ import annotations

from layermem.backends.reference.base import Array, ReferenceCall, kernel
from layermem.ops import Concat, Partition, Reshape, Silence, Slice, Split, Tile


def copy(into: Array, source: Array) -> None:
    """Copy the elements of `source` in Caffe's order to the axes of `into`."""
    if into.__array_interface__["data"][0] != source.__array_interface__["data"][0]:
        into[...] = source.reshape(into.shape)


def part(op: Partition | Tile, whole: Array, start: int, size: int) -> Array:
    return whole[(slice(None),) * op.along + (slice(start, start + size),)]


@kernel(Concat, "forward", narrow=r"x\d+|y0")
def concat_forward(op: Concat, call: ReferenceCall) -> None:
    for start, x in zip(op.starts, call.all("x"), strict=True):
        copy(part(op, call["y0"], start, x.shape[op.along]), x)


@kernel(Concat, "backward", narrow=r"dx\d+|dy0")
def concat_backward(op: Concat, call: ReferenceCall) -> None:
    for i, start in enumerate(op.starts):
        if f"dx{i}" in call:
            dx = call[f"dx{i}"]
            copy(dx, part(op, call["dy0"], start, dx.shape[op.along]))


@kernel(Slice, "forward", narrow=r"x0|y\d+")
def slice_forward(op: Slice, call: ReferenceCall) -> None:
    for start, y in zip(op.starts, call.all("y"), strict=True):
        copy(y, part(op, call["x0"], start, y.shape[op.along]))


@kernel(Slice, "backward", narrow=r"dx0|dy\d+")
def slice_backward(op: Slice, call: ReferenceCall) -> None:
    for start, dy in zip(op.starts, call.all("dy"), strict=True):
        copy(part(op, call["dx0"], start, dy.shape[op.along]), dy)


@kernel(Split, "forward", narrow=r"x0|y\d+")
def split_forward(op: Split, call: ReferenceCall) -> None:
    for y in call.all("y"):
        copy(y, call["x0"])


@kernel(Split, "backward")
def split_backward(op: Split, call: ReferenceCall) -> None:
    total, *others = call.all("dy")
    for dy in others:
        total = total + dy
    copy(call["dx0"], total)


@kernel(Reshape, "forward", narrow="x0|y0")
def reshape_forward(op: Reshape, call: ReferenceCall) -> None:
    copy(call["y0"], call["x0"])


@kernel(Reshape, "backward", narrow="dx0|dy0")
def reshape_backward(op: Reshape, call: ReferenceCall) -> None:
    copy(call["dx0"], call["dy0"])


@kernel(Tile, "forward", narrow="x0|y0")
def tile_forward(op: Tile, call: ReferenceCall) -> None:
    size = call["x0"].shape[op.along]
    for i in range(op.tiles):
        copy(part(op, call["y0"], i * size, size), call["x0"])


@kernel(Tile, "backward")
def tile_backward(op: Tile, call: ReferenceCall) -> None:
    size = call["dx0"].shape[op.along]
    total = part(op, call["dy0"], 0, size)
    for i in range(1, op.tiles):
        total = total + part(op, call["dy0"], i * size, size)
    call["dx0"][...] = total


@kernel(Silence, "forward")
def silence(op: Silence, call: ReferenceCall) -> None:
    pass
