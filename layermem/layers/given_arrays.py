"""Arrays of items that a user gives in place of data: the first axis counts the items of a top.

    {"data": [N,C,H,W], "label": [N]}            for layers of the TRAIN phase, by the names of their tops
    {"test_data": ..., "test_label": ...}        for layers of the TEST phase

A layer whose tops all have an array reads them; a layer of which no top has one reads its own data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from layermem.errors import InputError
from layermem.layers.data import FROM_FILES, stated_batch
from layermem.proto.schema import TRAIN, Message

Arrays = Mapping[str, np.ndarray]
OF_TEST = "test_"  # before the names of arrays for the TEST phase


def given_arrays(arrays: Arrays | None, layer: Message, phase: int) -> dict[str, np.ndarray]:
    """The arrays for the tops of an input layer, by the names that the user gave; none if it reads its own data."""
    names = [name if phase == TRAIN else OF_TEST + name for name in layer.top]
    found = {name: arrays[name] for name in names if arrays is not None and name in arrays}
    if found and len(found) < len(names):
        missing = ", ".join(name for name in names if name not in found)
        raise InputError(
            f"is given {', '.join(found)}, and not {missing}; give an array for each top", layer=layer.name
        )
    if len({len(array) for array in found.values()}) > 1:
        counts = ", ".join(f"{len(array)} of {name}" for name, array in found.items())
        raise InputError(f"is given different numbers of items, {counts}; make them equal", layer=layer.name)
    return found


def shapes_of_arrays(
    layers: Iterable[Message], phase: int, arrays: Arrays | None, batch: int | None
) -> dict[str, tuple[int, ...]]:
    """Shapes of the tops of layers that would read files, in batches of `batch` or of what the layers state."""
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in layers if arrays else ():
        items = batch or stated_batch(layer)
        if layer.type in FROM_FILES and items:
            found = given_arrays(arrays, layer, phase)
            shapes |= {top: (items, *array.shape[1:]) for top, array in zip(layer.top, found.values())}
    return shapes
