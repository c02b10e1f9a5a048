"""The layer types that a net may have."""

from __future__ import annotations

from functools import lru_cache

from layermem.layers.base import LAYERS, PARTS
from layermem.layers.composite import COMPOSITES
from layermem.layers.data import FEEDS, MATRIX, SIZES


@lru_cache(maxsize=1)
def _types() -> tuple[str, ...]:
    return tuple(sorted({*LAYERS, *FEEDS, *COMPOSITES} - PARTS - {MATRIX, SIZES}))


def known_types() -> list[str]:
    """The sorted names of all layer types: AbsVal, Accuracy, ..."""
    return list(_types())
