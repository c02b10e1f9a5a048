"""Splits any number of items into batches of the net's size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from layermem.errors import InputError

Array = npt.NDArray[Any]


def batches_of(items: Mapping[str, npt.ArrayLike], sizes: Mapping[str, int]) -> Iterator[tuple[dict[str, Array], int]]:
    """Yield batches of `sizes` items by name, each with its number of items; zeros fill up the last one.

    InputError unless all names have the same number of items and of batches."""
    arrays = {name: np.asarray(each) for name, each in items.items()}
    counts = {name: len(each) if each.ndim else 0 for name, each in arrays.items()}
    if len(set(counts.values())) > 1 or len({sizes[name] for name in arrays}) > 1:
        given = ", ".join(f"{count} of '{name}' in batches of {sizes[name]}" for name, count in counts.items())
        raise InputError(f"items go in batches together, and there are {given}; make both numbers equal")
    total, size = next(iter(counts.values())), next(iter(sizes.values()))
    for begin in range(0, total, size):
        here = min(size, total - begin)
        yield {name: _filled(each[begin : begin + size], size) for name, each in arrays.items()}, here


def joined(parts: Sequence[Array]) -> Array:
    """Join the rows of all batches in one array."""
    return np.concatenate(parts)


def _filled(rows: Array, size: int) -> Array:
    """Append rows of zeros to `rows`, `size` rows in all."""
    if len(rows) == size:
        return rows
    return np.concatenate([rows, np.zeros((size - len(rows), *rows.shape[1:]), rows.dtype)])
