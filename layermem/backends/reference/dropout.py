"""Dropout: the same words are drawn forward, backward and in a replay."""

from __future__ import annotations

from typing import Any

import numpy as np

from layermem.backends.reference.base import Buffers, kernel, stored
from layermem.backends.reference.philox import words


def dropped(layer: Any, b: Buffers, into: np.ndarray, source: np.ndarray) -> None:
    """into = source where kept, scaled; 0 elsewhere."""
    into, source = stored(into), stored(source)
    drawn = words(source.size, b.seed, layer.stream, b.step).reshape(source.shape)
    into[...] = np.where(drawn >= layer.threshold, source * layer.scale, 0)


@kernel("Dropout.forward")
def forward(layer: Any, b: Buffers) -> None:
    if layer.identity:
        b.y[...] = b.x
    else:
        dropped(layer, b, b.y, b.x)


@kernel("Dropout.backward")
def backward(layer: Any, b: Buffers) -> None:
    if layer.identity:
        b.dx[...] = b.dy
    else:
        dropped(layer, b, b.dx, b.dy)
