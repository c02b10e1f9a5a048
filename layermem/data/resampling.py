"""Resizes with the interpolations of OpenCV that ResizeParameter names, by taps and weights along each axis.

    resample(image, height, width, mode)     LINEAR AREA NEAREST CUBIC LANCZOS4

LINEAR and NEAREST give OpenCV's numbers; the others are sums in float32 here, within 1 of OpenCV's.
source  OpenCV 4 imgproc/resize.cpp
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from layermem.data.images import resize

CUBIC = np.float64(-0.75)  # the parameter of the cubic kernel

Taps = tuple[np.ndarray, np.ndarray]  # old pixels [new, taps], their weights


def resample(image: np.ndarray, height: int, width: int, mode: str) -> np.ndarray:
    """Resize a uint8 image [C,H,W]."""
    if image.shape[1:] == (height, width):
        return image
    if mode == "LINEAR":
        return resize(image, height, width)
    if mode == "AREA" and not (image.shape[1] >= height and image.shape[2] >= width):
        mode = "AREA LINEAR"  # for an axis that grows
    rows = _along(image.astype(np.float32), *taps(image.shape[1], height, mode), axis=1)
    both = _along(rows, *taps(image.shape[2], width, mode), axis=2)
    return saturated(both)


def saturated(values: np.ndarray) -> np.ndarray:
    """Values rounded to integers (halves to even) and clipped to 0 .. 255."""
    rounded: np.ndarray = np.clip(np.rint(values), 0, 255).astype(np.uint8)
    return rounded


def _along(image: np.ndarray, pixels: np.ndarray, weights: np.ndarray, *, axis: int) -> np.ndarray:
    shape = [1, 1, 1]
    shape[axis] = len(pixels)
    total: np.ndarray = np.zeros(1, np.float32)
    for tap in range(pixels.shape[1]):
        total = total + np.take(image, pixels[:, tap], axis) * weights[:, tap].reshape(shape)
    return total


@lru_cache(maxsize=64)
def taps(old: int, new: int, mode: str) -> Taps:
    scale = old / new
    at = np.arange(new)
    if mode == "NEAREST":
        return np.minimum(np.floor(at * scale).astype(int), old - 1)[:, None], np.ones((new, 1), np.float32)
    if mode == "AREA":
        return _area(old, new, scale)
    if mode == "AREA LINEAR":
        low = np.floor(at * scale).astype(int)
        share = (at + 1) - (low + 1) / scale
        share = np.where(share <= 0, 0, share - np.floor(share))
        offsets, weights = np.arange(2), np.stack([1 - share, share], axis=1)
    else:
        centre = (at + 0.5) * scale - 0.5
        low = np.floor(centre).astype(int)
        offsets, weights = _kernel(mode, centre - low)
    return np.clip(low[:, None] + offsets, 0, old - 1), weights.astype(np.float32)


def _area(old: int, new: int, scale: float) -> Taps:
    """Taps of the mean over the old pixels that a new pixel covers; partial pixels count by their covered part."""
    begin, end = np.arange(new) * scale, np.arange(1, new + 1) * scale
    first, count = np.floor(begin).astype(int), int(np.ceil(scale)) + 1
    pixels = first[:, None] + np.arange(count)
    covered = np.minimum(end[:, None], pixels + 1) - np.maximum(begin[:, None], pixels)
    weights = np.where(pixels < old, np.maximum(covered, 0), 0)
    return np.minimum(pixels, old - 1), (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)


def _kernel(mode: str, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Offsets of the old pixels around a new centre, which lies `share` after the pixel at offset 0, and their
    weights."""
    if mode == "CUBIC":
        offsets = np.arange(-1, 3)
        x = abs(share[:, None] - offsets)
        near = ((CUBIC + 2) * x - (CUBIC + 3)) * x * x + 1
        far = ((CUBIC * x - 5 * CUBIC) * x + 8 * CUBIC) * x - 4 * CUBIC
        return offsets, np.where(x <= 1, near, far)
    offsets = np.arange(-3, 5)
    x = share[:, None] - offsets
    weights = np.sinc(x) * np.sinc(x / 4)
    return offsets, weights / weights.sum(axis=1, keepdims=True)
