"""Copies that many ops make: of runs, transposed, and between other axes of the same elements.

A copy onto itself is omitted, so a view costs nothing.  `storage` is the storage of both sides, as in KernelCall.
"""

from __future__ import annotations

from collections.abc import Iterator

from layermem.backends.cuda.base import itemsize, suffix
from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, divider, launch, vector_width
from layermem.ops import Tensor

MAX_ITEMS = 65535  # blocks along a grid's third axis
TILE = 32  # side of a transposed tile


def copy_runs(
    y: int, x: int, outer: int, run: int, y_pitch: int, x_pitch: int, accumulate: bool = False, storage: str = ""
) -> Iterator[Launch]:
    """y[o, i] = x[o, i] for `outer` runs of `run` elements; addresses of the first runs, pitches in elements."""
    if y == x:
        return
    size = itemsize(storage)
    v = vector_width(run, y_pitch, x_pitch, y // size, x // size)
    yield launch(
        "shape",
        f"copy_runs_v{v}{suffix(storage)}",
        "RunsArgs",
        ceil_div(outer * run, THREADS * v),
        y=y,
        x=x,
        by_run=divider(run),
        count=outer * run,
        y_pitch=y_pitch,
        x_pitch=x_pitch,
        accumulate=accumulate,
    )


def copy(y: int, x: int, count: int, accumulate: bool = False, storage: str = "") -> Iterator[Launch]:
    outer, run, pitch = (1, count, 0) if count % 4 == 0 else (count, 1, 1)
    return copy_runs(y, x, outer, run, pitch, pitch, accumulate, storage)


def transpose(
    y: int, x: int, items: int, rows: int, columns: int, accumulate: bool = False, storage: str = ""
) -> Launch:
    """y[n, j, i] = x[n, i, j], with x [items][rows][columns]."""
    grid = (ceil_div(columns, TILE), ceil_div(rows, TILE), min(items, MAX_ITEMS))
    return launch(
        "shape",
        f"transpose{suffix(storage)}",
        "TransposeArgs",
        grid,
        y=y,
        x=x,
        items=items,
        rows=rows,
        columns=columns,
        accumulate=accumulate,
    )


def channels_and_places(tensor: Tensor) -> tuple[int, int]:
    """Channels, and pixels per item, of an interleaved tensor."""
    return tensor.shape[1], tensor.shape[2] * tensor.shape[3]


def reorder(
    y: int, into: Tensor, x: int, source: Tensor, accumulate: bool = False, storage: str = ""
) -> Iterator[Launch]:
    """Write the elements of `source` in Caffe's order to `y`, with the axes of `into`."""
    if into.ordered_like(source):
        yield from copy(y, x, into.count, accumulate, storage)
    elif not source.interleaved:
        channels, places = channels_and_places(into)
        yield transpose(y, x, into.shape[0], channels, places, accumulate, storage)
    elif not into.interleaved:
        channels, places = channels_and_places(source)
        yield transpose(y, x, source.shape[0], places, channels, accumulate, storage)
    else:
        (y_channels, y_places), (x_channels, x_places) = channels_and_places(into), channels_and_places(source)
        yield launch(
            "shape",
            f"reorder{suffix(storage)}",
            "ReorderArgs",
            ceil_div(into.count, THREADS),
            y=y,
            x=x,
            y_item=divider(y_channels * y_places),
            y_channels=divider(y_channels),
            x_item=divider(x_channels * x_places),
            x_places=divider(x_places),
            count=into.count,
            accumulate=accumulate,
        )
