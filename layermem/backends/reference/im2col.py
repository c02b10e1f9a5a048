"""Im2col: a copy for each tap."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from layermem.backends.reference.base import Array, ReferenceCall, kernel
from layermem.ops import Im2col, TapRange

Slices = tuple[slice | int, ...]


def taps(op: Im2col) -> Iterator[tuple[Slices, Slices]]:
    """Yield, for each tap, its slices of y and of x; both by [frames.., N, C], then y by tap, and by rows, columns."""
    windows = (*op.outer, op.rows, op.columns)
    for tap, place in enumerate(np.ndindex(*(window.kernel for window in windows))):
        into, source = list[slice](), list[slice]()
        for window, at in zip(windows, place, strict=True):
            part = TapRange.of(window, at, window.floor_out)
            into.append(slice(part.first, part.first + part.count))
            source.append(slice(part.start, part.start + part.count * window.stride, window.stride))
        if all(s.start < s.stop for s in into):
            items = (slice(None), slice(None))
            yield (*into[:-2], *items, tap, *into[-2:]), (*source[:-2], *items, *source[-2:])


def axes_of_x(op: Im2col, x: Array) -> Array:
    return x.reshape(*(window.size for window in op.outer), op.items, *x.shape[1:])


def axes_of_y(op: Im2col, y: Array) -> Array:
    frames = (window.floor_out for window in op.outer)
    return y.reshape(*frames, op.items, y.shape[1] // op.taps, op.taps, *y.shape[2:])


@kernel(Im2col, "forward")
def im2col_forward(op: Im2col, call: ReferenceCall) -> None:
    x, y = axes_of_x(op, call["x0"]), axes_of_y(op, call["y0"])
    y[...] = 0
    for into, source in taps(op):
        y[into] = x[source]


@kernel(Im2col, "backward")
def im2col_backward(op: Im2col, call: ReferenceCall) -> None:
    dx, dy = axes_of_x(op, call["dx0"]), axes_of_y(op, call["dy0"])
    dx[...] = 0
    for into, source in taps(op):
        dx[source] += dy[into]
