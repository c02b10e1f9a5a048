"""The layer types that a net may have."""

from __future__ import annotations

from functools import lru_cache

from layermem.layers.base import LAYERS, PARTS, Layer
from layermem.layers.composite import COMPOSITES, FAMILIES
from layermem.layers.data import FEED_LAYERS, FEEDS, MATRIX, SIZES


@lru_cache(maxsize=1)
def _types() -> tuple[str, ...]:
    return tuple(sorted({*LAYERS, *FEEDS, *COMPOSITES} - PARTS - {MATRIX, SIZES}))


def known_types() -> list[str]:
    """The sorted names of all layer types: AbsVal, Accuracy, ..."""
    return list(_types())


def family_of(name: str) -> str:
    """The family of a layer type, that of a fork included, by which pictures choose its hue."""
    cls = LAYERS.get(name, FEED_LAYERS.get(name, Layer))
    if cls.is_loss or cls.is_score or name.endswith("Loss"):
        return "loss"
    return FAMILIES.get(name, cls.family)
