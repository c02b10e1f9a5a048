"""Determines the shapes of an input layer's tops from its files or, without these, from its prototxt.

The libraries for images and databases are loaded (through opening.py) only if the files exist.
"""

from __future__ import annotations

from layermem.data.layer_files import batch_size, resolver
from layermem.errors import InputError
from layermem.layers.data import FROM_FILES, Shapes, shape_options, stated_shapes
from layermem.proto.schema import Message
from layermem.utils.open_file import Files

SHAPE_HINT = ", or set crop_size with force_color, force_gray or a mean_value for each channel"


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
        options = shape_options(param) + (SHAPE_HINT if param.type == "Data" else "")
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


def declared_shapes(param: Message) -> Shapes | None:
    """Shapes of the tops of Data or ImageData by the prototxt alone; None if it does not state them completely.

    Height and width are those of the crop, or ImageData's new_height and new_width.  Channels follow from is_color,
    force_color, force_gray or the number of mean values; WindowData always reads colour images.  AnnotatedData states
    its size in resize_param, except with FIT_SMALL_SIZE."""
    if param.type == "HDF5Data":
        return None
    transform = param.transform_param
    height = width = transform.crop_size
    if param.type == "AnnotatedData":
        from layermem.data.resizing import resizing_of

        height, width = resizing_of(transform).stated or (0, 0)
    if param.type == "WindowData":
        from layermem.data.window_source import CHANNELS

        channels = CHANNELS
    elif param.type == "ImageData":
        channels = 3 if param.image_data_param.is_color else 1
        if not transform.crop_size:
            height, width = param.image_data_param.new_height, param.image_data_param.new_width
    else:
        means = len(transform.mean_value) if len(transform.mean_value) > 1 else 0  # a single one fits any channels
        channels = 3 if transform.force_color else 1 if transform.force_gray else means
    if not (channels and height and width):
        return None
    batch = batch_size(param)
    labels: tuple[int, ...] = (batch,)
    if param.type == "AnnotatedData":
        from layermem.data.annotated import ROWS_OF_ITEM

        labels = (1, 1, batch * ROWS_OF_ITEM, 8)
    return ((batch, channels, height, width), labels)[: len(param.top)]
