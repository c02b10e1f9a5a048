"""Shape layers: copies of runs between blobs, and the two orders of an item's elements, Caffe's and memory's.

A copy onto itself is left out, so that a view costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from layermem.backends.cuda.launch import THREADS, Addresses, Launch, ceil_div, divider, kernel, launch, width
from layermem.errors import InputError
from layermem.layers import Tensor

FLOAT = 4
MOST_ITEMS = 65535  # that a grid's third axis takes at once


def copy_runs(
    y: int, x: int, outer: int, run: int, y_pitch: int, x_pitch: int, accumulate: bool = False
) -> Iterator[Launch]:
    """y[o, i] = x[o, i]; addresses are of the first runs, pitches in elements."""
    if y == x:
        return
    v = width(run, y_pitch, x_pitch, y // FLOAT, x // FLOAT)
    yield launch(
        "shape", f"copy_runs_v{v}", "RunsArgs", ceil_div(outer * run, THREADS * v), y=y, x=x, by_run=divider(run),
        count=outer * run, y_pitch=y_pitch, x_pitch=x_pitch, accumulate=accumulate,
    )  # fmt: skip


def copy(y: int, x: int, count: int, accumulate: bool = False) -> Iterator[Launch]:
    return (
        copy_runs(y, x, 1, count, 0, 0, accumulate) if count % 4 == 0 else copy_runs(y, x, count, 1, 1, 1, accumulate)
    )


def transpose(y: int, x: int, items: int, rows: int, columns: int, accumulate: bool = False) -> Launch:
    """y[n, j, i] = x[n, i, j], x [items][rows][columns]."""
    grid = (ceil_div(columns, 32), ceil_div(rows, 32), min(items, MOST_ITEMS))
    return launch(
        "shape", "transpose", "TransposeArgs", grid, y=y, x=x, items=items, rows=rows, columns=columns,
        accumulate=accumulate,
    )  # fmt: skip


def interleaved(tensor: Tensor) -> tuple[int, int] | None:
    """(channels, places) of an item whose memory is not in Caffe's order."""
    if len(tensor.shape) != 4 or tensor.shape[1] == 1 or tensor.shape[2] * tensor.shape[3] == 1:
        return None
    return tensor.shape[1], tensor.shape[2] * tensor.shape[3]


def reorder(y: int, into: Tensor, x: int, source: Tensor, accumulate: bool = False) -> Iterator[Launch]:
    """The elements of `source` in Caffe's order, under the axes of `into`."""
    if into.ordered_like(source):
        yield from copy(y, x, into.count, accumulate)
        return
    to, of = interleaved(into), interleaved(source)
    if of is None and to is not None:
        yield transpose(y, x, into.shape[0], *to, accumulate)
    elif to is None and of is not None:
        yield transpose(y, x, source.shape[0], of[1], of[0], accumulate)
    elif to is not None and of is not None:
        yield launch(
            "shape", "reorder", "ReorderArgs", ceil_div(into.count, THREADS), y=y, x=x,
            y_item=divider(to[0] * to[1]), y_channels=divider(to[0]), x_item=divider(of[0] * of[1]),
            x_places=divider(of[1]), count=into.count, accumulate=accumulate,
        )  # fmt: skip


def part(layer: Any, whole: Tensor, start: int, size: int) -> tuple[int, int, int, int]:
    """(outer, run, pitch, offset in bytes) of `size` from `start` on along the layer's axis of `whole`."""
    outer, total, inner = whole.around(layer.along)
    return outer, size * inner, total * inner, FLOAT * start * inner


@kernel("Concat.forward")
def concat_forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    for i, (start, x) in enumerate(zip(layer.starts, layer.bottoms, strict=True)):
        outer, run, pitch, offset = part(layer, layer.tops[0], start, x.shape[layer.along])
        yield from copy_runs(b["y0"] + offset, b[f"x{i}"], outer, run, pitch, run)


@kernel("Concat.backward")
def concat_backward(layer: Any, b: Addresses) -> Iterator[Launch]:
    for i, (start, x) in enumerate(zip(layer.starts, layer.bottoms, strict=True)):
        dx = f"dx{i}"
        if dx in b:
            outer, run, pitch, offset = part(layer, layer.tops[0], start, x.shape[layer.along])
            yield from copy_runs(b[dx], b["dy0"] + offset, outer, run, run, pitch, b.accumulates(dx))


@kernel("Slice.forward")
def slice_forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    for i, (start, y) in enumerate(zip(layer.starts, layer.tops, strict=True)):
        outer, run, pitch, offset = part(layer, layer.bottoms[0], start, y.shape[layer.along])
        yield from copy_runs(b[f"y{i}"], b["x0"] + offset, outer, run, run, pitch)


@kernel("Slice.backward")
def slice_backward(layer: Any, b: Addresses) -> Iterator[Launch]:
    for i, (start, y) in enumerate(zip(layer.starts, layer.tops, strict=True)):
        outer, run, pitch, offset = part(layer, layer.bottoms[0], start, y.shape[layer.along])
        yield from copy_runs(b["dx0"] + offset, b[f"dy{i}"], outer, run, pitch, run, b.accumulates("dx0"))


@kernel("Split.forward")
def split_forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    for i in range(len(layer.tops)):
        yield from copy(b[f"y{i}"], b["x0"], layer.tops[0].count)


@kernel("Flatten.forward", "Reshape.forward")
def reorder_forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield from reorder(b["y0"], layer.tops[0], b["x0"], layer.bottoms[0])


@kernel("Flatten.backward", "Reshape.backward")
def reorder_backward(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield from reorder(b["dx0"], layer.bottoms[0], b["dy0"], layer.tops[0], b.accumulates("dx0"))


@kernel("Tile.forward")
def tile_forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    outer, size, inner = layer.bottoms[0].around(layer.along)
    run = size * inner
    for i in range(layer.tiles):
        yield from copy_runs(b["y0"] + FLOAT * i * run, b["x0"], outer, run, layer.tiles * run, run)


@kernel("Tile.backward")
def tile_backward(layer: Any, b: Addresses) -> Iterator[Launch]:
    _, size, inner = layer.bottoms[0].around(layer.along)
    count, v = layer.bottoms[0].count, width(size * inner)
    yield launch(
        "shape", f"sum_runs_v{v}", "SumRunsArgs", ceil_div(count, THREADS * v), y=b["dx0"], x=b["dy0"],
        by_run=divider(size * inner), count=count, terms=layer.tiles, accumulate=b.accumulates("dx0"),
    )  # fmt: skip


@kernel("Silence.forward")
def silence(layer: Any, b: Addresses) -> Iterator[Launch]:
    return iter(())


# -- Crop --------------------------------------------------------------------------------------------------------------


def crop(y: int, into: Tensor, x: int, source: Tensor, shifts: tuple[int, ...], accumulate: bool) -> Launch:
    """Element i of y is element i + shift of x, or zero; shifts by Caffe's axes."""
    if len(shifts) > 4:
        raise InputError(f"crops a bottom of {len(shifts)} axes; the cuda device crops up to 4: Reshape it first")
    in_memory = Tensor(shifts).stored if len(shifts) == 4 else shifts
    room = 4 - len(in_memory)
    to, of, by = ((fill,) * room + tuple(t) for fill, t in ((1, into.stored), (1, source.stored), (0, in_memory)))
    v = width(to[3], of[3], by[3])
    return launch(
        "shape", f"crop_v{v}", "CropArgs", ceil_div(into.count, THREADS * v), y=y, x=x,
        y1=divider(to[1]), y2=divider(to[2]), y3=divider(to[3]), **{f"x{i}": of[i] for i in range(4)},
        **{f"shift{i}": by[i] for i in range(4)}, count=into.count, accumulate=accumulate,
    )  # fmt: skip


@kernel("Crop.forward")
def crop_forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield crop(b["y0"], layer.tops[0], b["x0"], layer.bottoms[0], layer.offsets, False)


@kernel("Crop.backward")
def crop_backward(layer: Any, b: Addresses) -> Iterator[Launch]:
    back = tuple(-offset for offset in layer.offsets)
    yield crop(b["dx0"], layer.bottoms[0], b["dy0"], layer.tops[0], back, b.accumulates("dx0"))
