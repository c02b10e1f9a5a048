"""Arrays to predict on, from .npy and .npz files: the contents of a net's inputs, without a transform.

x.npy     items along the first axis, [N,C,H,W] for an input of images; or one item without that axis
x.npz     such an array for each input, by the name of its blob; any name if the net has one input
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from layermem.errors import InputError
from layermem.utils.open_file import OpenFile
from layermem.utils.text import shape_text

ARRAY_ENDINGS = (".npy", ".npz")
Arrays = dict[str, npt.NDArray[Any]]


def is_array_file(path: str) -> bool:
    return Path(path).suffix.lower() in ARRAY_ENDINGS


def read_array_items(path: str, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, Arrays]]:
    """Yield (name, an array for each input) of each item; `shapes` are the shapes of one item, by input."""
    arrays = _named(path, load_arrays(path), shapes)
    stacked = {name: _items(path, name, array, shapes[name]) for name, array in arrays.items()}
    counts = {name: len(array) for name, array in stacked.items()}
    if len(set(counts.values())) > 1:
        given = ", ".join(f"{count} of '{name}'" for name, count in counts.items())
        raise InputError(f"has different numbers of items, {given}; make them equal", path=path)
    count = next(iter(counts.values()))
    if not count:
        raise InputError("has no items; give at least one", path=path)
    for index in range(count):
        name = path if count == 1 else f"{path}[{index}]"
        yield name, {key: array[index] for key, array in stacked.items()}


def load_arrays(path: str) -> dict[str, Any]:
    """The arrays of an .npz by name; the array of an .npy by the name `array`."""
    loaded = _load(path)
    return {"array": loaded} if isinstance(loaded, np.ndarray) else loaded


def _load(path: str) -> Any:
    """The array of an .npy, or the arrays of an .npz by name."""
    file = OpenFile(path, what="array file")
    try:
        with file.reader() as handle:
            loaded = np.load(handle, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return loaded
            arrays = {key: loaded[key] for key in loaded.files}
    except InputError:
        raise
    except Exception as error:  # zipfile, struct and numpy raise many kinds for damaged files
        raise InputError(f"cannot be read as arrays ({error}); write it with numpy.save or savez", path=path) from None
    for key, value in arrays.items():
        if not isinstance(value, np.ndarray):
            raise InputError(f"holds '{key}', which is no array; write it with numpy.savez", path=path)
    return arrays


def _named(path: str, loaded: dict[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Arrays:
    if len(shapes) == 1 and len(loaded) == 1:
        return {next(iter(shapes)): next(iter(loaded.values()))}
    if loaded.keys() != shapes.keys():
        raise InputError(
            f"has the arrays {', '.join(map(repr, loaded)) or 'none'}, and the net the inputs "
            f"{', '.join(map(repr, shapes))}; give an .npz with an array for each, by name",
            path=path,
        )
    return {name: loaded[name] for name in shapes}


def _items(path: str, name: str, array: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    if array.dtype.kind not in "fiub":
        raise InputError(f"holds values of type {array.dtype}, and no numbers; give float32", path=path)
    if array.shape == shape:
        return array[np.newaxis]
    if array.shape[1:] != shape or not array.ndim:
        is_, wanted = map(shape_text, (array.shape, ("N", *shape)))
        raise InputError(f"has {is_} for the input '{name}', which takes {wanted}; reshape it", path=path)
    return array
