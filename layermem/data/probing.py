"""Determines the shapes of the tops of an input layer: by its prototxt, as far as that states them, or from its files.

Only files that are there need the libraries that read images and databases: opening.py is loaded for them.
"""

from __future__ import annotations

from layermem.data.layer_files import resolver
from layermem.errors import InputError
from layermem.layers.data import FROM_FILES, Shapes, declared_shapes, shape_options, stated_shapes
from layermem.proto.schema import Message
from layermem.utils.open_file import Files

SHAPE_HINT = ", or set crop_size with force_color, force_gray or a mean_value for each channel"


def probe(param: Message, phase: int, path: str, files: Files | None = None) -> Shapes:
    """Shapes of an input layer's tops: from its files, or from its prototxt if the files do not exist.

    files   those that the net names, as far as they are open
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
        options = shape_options(param) + (SHAPE_HINT if param.type == "Data" else "")
        raise InputError(
            f"{missing.what}, and the prototxt does not state its shape; create it, or give {options}"
        ) from None
    from layermem.data.opening import shapes_of_files

    return shapes_of_files(param, phase, path, files)


def probe_files(
    param: Message, phase: int, path: str, files: Files | None = None, remedy: str = "use DummyData"
) -> Shapes:
    """The same for a net that will run, so that its data must exist; `remedy` is what else would work."""
    if param.type in FROM_FILES:
        resolver(path, f"; create it, or {remedy}")(getattr(param, FROM_FILES[param.type]).source)
    return probe(param, phase, path, files)
