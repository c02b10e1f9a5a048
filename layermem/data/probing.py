"""Determines the shapes of an input layer's tops from its files or, without these, from its prototxt.

The libraries for images and databases are loaded (through opening.py) only if the files exist.
"""

from __future__ import annotations

from layermem.data.layer_files import resolver
from layermem.errors import InputError
from layermem.layers.data import FEED_LAYERS, FROM_FILES, Shapes, declared_shapes, shape_options, stated_shapes
from layermem.proto.schema import Message
from layermem.utils.open_file import Files


def probe(param: Message, phase: int, path: str, files: Files | None = None) -> Shapes:
    """Shapes of an input layer's tops: from its files, or from its prototxt if the files do not exist.

    files   the open files of the net
    """
    if param.type not in FROM_FILES:
        return tuple(stated_shapes(param))
    block = FROM_FILES[param.type]
    resolve = resolver(path)
    try:
        resolve(getattr(param, block).source)
    except InputError as missing:
        if shapes := declared_shapes(param):
            return shapes
        options = shape_options(param) + FEED_LAYERS[param.type].shape_hint
        raise InputError(
            f"{missing.what}, and the prototxt does not state its shape; create it, or give {options}"
        ) from None
    from layermem.data.opening import shapes_of_files

    return shapes_of_files(param, phase, path, files)


def probe_files(
    param: Message, phase: int, path: str, files: Files | None = None, remedy: str = "use DummyData"
) -> Shapes:
    """Return the shapes of a net that will run, whose data must exist; `remedy` is an alternative for the error."""
    if param.type in FROM_FILES:
        resolver(path, f"; create it, or {remedy}")(getattr(param, FROM_FILES[param.type]).source)
    return probe(param, phase, path, files)
