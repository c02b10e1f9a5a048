"""RoiPool and PsRoiPool: windows from the second bottom, computed in float32 for all blob types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from layermem.backends.reference.base import Array, ReferenceCall, kernel
from layermem.errors import InputError
from layermem.ops import PsRoiPool, RoiPool

FAR = 2.0**24  # pixels: limit to which corners are clipped


def corner(value: float, scale: float) -> int:
    """round(value scale), with halves rounded away from zero as in C."""
    scaled = float(np.clip(np.float32(value) * np.float32(scale), -FAR, FAR))
    return int(np.copysign(np.floor(abs(scaled) + 0.5), scaled))


def spans(first: int, last: int, windows: int, size: int) -> list[slice]:
    """For each window between two corners, the elements that it covers on an axis of `size`."""
    bin_size = np.float32(max(last - first + 1, 1)) / np.float32(windows)
    begin = [int(np.floor(np.float32(i) * bin_size)) + first for i in range(windows)]
    end = [int(np.ceil(np.float32(i + 1) * bin_size)) + first for i in range(windows)]
    return [slice(min(max(a, 0), size), min(max(b, 0), size)) for a, b in zip(begin, end, strict=True)]


def checked_regions(op: RoiPool | PsRoiPool, rois: Array, layer: str) -> Iterator[Array]:
    """Yield each region in float32; InputError for a region in no image."""
    items = op.x.shape[0]
    for roi in rois.reshape(-1, 5).astype(np.float32):
        if not np.isfinite(roi).all() or not 0 <= int(roi[0]) < items:
            raise InputError(
                f"reads a region of interest in image {roi[0]:.9g}, from {roi[1]:.9g}, {roi[2]:.9g} to {roi[3]:.9g}, "
                f"{roi[4]:.9g}, but has {items} images: 0 to {items - 1}; fix the data",
                layer=layer,
            )
        yield roi


def regions(op: RoiPool, rois: Array, layer: str) -> Iterator[tuple[int, list[slice], list[slice]]]:
    """Yield the item, and the rows and columns of the windows, of each region."""
    _, _, height, width = op.x.shape
    _, _, rows, columns = op.y.shape
    for roi in checked_regions(op, rois, layer):
        x1, y1, x2, y2 = (corner(value, op.spatial_scale) for value in roi[1:])
        yield int(roi[0]), spans(y1, y2, rows, height), spans(x1, x2, columns, width)


@kernel(RoiPool, "forward")
def roi_pool_forward(op: RoiPool, call: ReferenceCall) -> None:
    x, width = call["x0"], op.x.shape[3]
    y, argmax = np.zeros(op.y.shape, x.dtype), np.full(op.y.shape, -1, np.int32)
    for r, (item, rows, columns) in enumerate(regions(op, call["x1"], call.layer)):
        for i, down in enumerate(rows):
            for j, right in enumerate(columns):
                window = x[item, :, down, right]
                if window.size == 0:
                    continue
                seen = np.where(np.isnan(window), -np.inf, window).reshape(len(window), -1)
                best = seen.argmax(axis=1)
                y[r, :, i, j] = seen[np.arange(len(seen)), best]
                row, column = np.divmod(best, window.shape[2])
                argmax[r, :, i, j] = (row + down.start) * width + column + right.start
    call["y0"][...] = y
    if "argmax" in call:
        call["argmax"][...] = argmax


@kernel(RoiPool, "backward")
def roi_pool_backward(op: RoiPool, call: ReferenceCall) -> None:
    n, c, h, w = op.x.shape
    dx = np.zeros((n, c, h * w), call["dy0"].dtype)
    channels = np.arange(c)
    for r, item in enumerate(call["x1"].reshape(-1, 5)[:, 0].astype(int)):
        for i in range(op.y.shape[2]):
            for j in range(op.y.shape[3]):
                at = call["argmax"][r, :, i, j]
                won = at >= 0
                dx[item, channels[won], at[won]] += call["dy0"][r, won, i, j]
    call["dx0"][...] = dx.reshape(op.x.shape)


# -- PsRoiPool ---------------------------------------------------------------------------------------------------------


def mean_spans(first: float, last: float, scale: float, windows: int, size: int) -> list[slice]:
    """For each window, the elements of an axis that it averages."""
    begin = np.float32(corner(first, 1)) * np.float32(scale)
    end = (np.float32(corner(last, 1)) + np.float32(1)) * np.float32(scale)
    bin_size = np.maximum(end - begin, np.float32(0.1)) / np.float32(windows)
    edges = [(np.float32(i) * bin_size + begin, np.float32(i + 1) * bin_size + begin) for i in range(windows)]
    return [slice(min(max(int(np.floor(a)), 0), size), min(max(int(np.ceil(b)), 0), size)) for a, b in edges]


def mean_windows(op: PsRoiPool, call: ReferenceCall) -> Iterator[tuple[Any, Any]]:
    """Yield the place in y and the place in x of every window that is not empty."""
    g = op.grid
    for r, roi in enumerate(checked_regions(op, call["x1"], call.layer)):
        rows = mean_spans(roi[2], roi[4], op.spatial_scale, g, op.x.shape[2])
        columns = mean_spans(roi[1], roi[3], op.spatial_scale, g, op.x.shape[3])
        for i, down in enumerate(rows):
            for j, right in enumerate(columns):
                if down.start < down.stop and right.start < right.stop:
                    yield (r, slice(None), i, j), (int(roi[0]), slice(i * g + j, None, g * g), down, right)


@kernel(PsRoiPool, "forward")
def ps_roi_pool_forward(op: PsRoiPool, call: ReferenceCall) -> None:
    y = np.zeros(op.y.shape, call["x0"].dtype)
    for into, source in mean_windows(op, call):
        y[into] = call["x0"][source].mean(axis=(1, 2))
    call["y0"][...] = y


@kernel(PsRoiPool, "backward")
def ps_roi_pool_backward(op: PsRoiPool, call: ReferenceCall) -> None:
    dx = np.zeros(op.x.shape, call["dy0"].dtype)
    for source, into in mean_windows(op, call):
        window = dx[into]
        window += (call["dy0"][source] / (window.shape[1] * window.shape[2]))[:, None, None]
    call["dx0"][...] = dx
