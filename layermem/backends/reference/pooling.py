"""Pooling: windows of a padded image, processed tap by tap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from layermem.backends.reference.base import Array, ReferenceCall, kernel, stored
from layermem.backends.reference.support.philox import words
from layermem.ops import Pool, StochasticPool, first_index


def taps(op: Pool) -> Iterator[tuple[int, tuple[slice, slice]]]:
    """Yield (index, slices): element `index` of every window, in an image padded so that no window is clipped."""
    rows, columns = op.windows
    _, _, ho, wo = op.y.shape
    for r in range(rows.kernel):
        for s in range(columns.kernel):
            down = slice(r, r + (ho - 1) * rows.stride + 1, rows.stride)
            right = slice(s, s + (wo - 1) * columns.stride + 1, columns.stride)
            yield r * columns.kernel + s, (down, right)


def padded_image(op: Pool, fill: float, dtype: np.dtype[Any]) -> tuple[Array, tuple[slice, slice]]:
    """An empty image that contains every window whole, and the slices of x in it."""
    n, c = op.x.shape[:2]
    sizes = [
        max((out - 1) * window.stride + window.kernel, window.pad + window.size)
        for window, out in zip(op.windows, op.y.shape[2:], strict=True)
    ]
    inside = tuple(slice(window.pad, window.pad + window.size) for window in op.windows)
    return np.full((n, c, *sizes), fill, dtype), inside  # type: ignore[return-value]


def divisors(op: Pool) -> Array:
    """[Ho,Wo]: number of elements of each window, clipped to the padded image as in Caffe."""
    counts = []
    for window, out in zip(op.windows, op.y.shape[2:], strict=True):
        start = np.arange(out) * window.stride - window.pad
        counts.append(np.minimum(start + window.kernel, window.size + window.pad) - start)
    return np.outer(*counts)


@kernel(Pool, "forward")
def pool_forward(op: Pool, call: ReferenceCall) -> None:
    if op.method == "AVE":
        image, inside = padded_image(op, 0, call["x0"].dtype)
        image[(..., *inside)] = call["x0"]
        total = np.zeros(call["y0"].shape, call["y0"].dtype)
        for _, at in taps(op):
            total += image[(..., *at)]
        call["y0"][...] = total / divisors(op).astype(call["y0"].dtype)
        return
    image, inside = padded_image(op, -np.inf, call["x0"].dtype)
    image[(..., *inside)] = call["x0"]
    best = np.full(call["y0"].shape, -np.inf, call["y0"].dtype)
    argmax = np.zeros(call["y0"].shape, np.int32)
    for index, at in taps(op):
        larger = image[(..., *at)] > best
        best[larger] = image[(..., *at)][larger]
        argmax[larger] = index
    call["y0"][...] = best
    if "argmax" in call:
        call["argmax"][...] = argmax
    if "y1" in call:
        call["y1"][...] = places(op, argmax)


def places(op: Pool, argmax: Array) -> Array:
    """The index within the plane H x W of each element in `argmax`."""
    starts = [np.arange(out) * w.stride - w.pad for w, out in zip(op.windows, op.y.shape[2:], strict=True)]
    tap_row, tap_column = np.divmod(argmax, op.columns.kernel)
    place: Array = (starts[0][:, None] + tap_row) * op.columns.size + starts[1] + tap_column
    return place


@kernel(StochasticPool, "forward")
def stochastic_pool_forward(op: StochasticPool, call: ReferenceCall) -> None:
    x, y = call["x0"], call["y0"]
    image, inside = padded_image(op, 0, x.dtype)
    image[(..., *inside)] = x
    within = np.zeros(image.shape, bool)
    within[(..., *inside)] = True
    total, squares = np.zeros(y.shape, x.dtype), np.zeros(y.shape, x.dtype)
    for _, at in taps(op):
        total += image[(..., *at)]
        squares += np.square(image[(..., *at)])
    if op.average:
        y[...] = np.where(total > 0, squares / np.where(total > 0, total, 1), 0)
        return
    random = np.empty(y.shape, x.dtype)
    first = first_index(op.batch_slice, y.size)
    drawn = words(y.size, call.context["seed"], op.stream, call.context["step"], first)
    stored(random)[...] = (drawn.astype(x.dtype) * x.dtype.type(2.0**-32)).reshape(op.y.stored)
    threshold, partial = random * total, np.zeros(y.shape, x.dtype)
    chosen, searching = np.zeros(y.shape, np.int32), np.ones(y.shape, bool)
    for index, at in taps(op):
        partial += image[(..., *at)]
        here = searching & within[(..., *at)]
        y[here] = image[(..., *at)][here]
        chosen[here] = index
        searching &= ~(partial >= threshold)
    if "argmax" in call:
        call["argmax"][...] = chosen


@kernel(Pool, "backward")
def pool_backward(op: Pool, call: ReferenceCall) -> None:
    image, inside = padded_image(op, 0, call["dy0"].dtype)
    share = call["dy0"] / divisors(op).astype(call["dy0"].dtype) if op.method == "AVE" else call["dy0"]
    for index, at in taps(op):
        image[(..., *at)] += share if op.method == "AVE" else np.where(call["argmax"] == index, share, 0)
    call["dx0"][...] = image[(..., *inside)]
