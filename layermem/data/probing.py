"""Determines the shapes of the tops of an input layer: by its prototxt, as far as that states them, or from its files.

Only files that are there need the libraries that read images and databases: opening.py is loaded for them.
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


def declared_shapes(param: Message) -> Shapes | None:
    """Shapes of the tops of Data or ImageData by the prototxt alone; None if it does not state them completely.

    Height and width are those of the crop, or ImageData's new_height and new_width; channels follow from is_color,
    force_color, force_gray, or from the number of mean values, and are those of colour images in WindowData.
    AnnotatedData states its size in resize_param, but with FIT_SMALL_SIZE.
    """
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
