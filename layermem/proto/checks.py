"""Checks of a single layer: a missing type, a path with an escape in it, or a shape that is impossible for a blob.

Checks that involve other layers (bottoms, sizes that follow from others) are in graph/.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from layermem.proto.schema import Message

MAX_AXES = 32  # Caffe's bounds for a blob
MAX_ELEMENTS = 2**31 - 1
PATHS = {  # fields that hold paths
    "file_name",
    "label_map_file",
    "mean_file",
    "meanfile",
    "name_size_file",
    "net",
    "root_folder",
    "snapshot_prefix",
    "source",
    "test_net",
    "train_net",
    "weights",
}


def shape_fault(dims: Sequence[int]) -> str | None:
    """The reason why a blob cannot have these extents; None if it can."""
    text = " x ".join(str(dim) for dim in dims)
    if any(dim < 1 for dim in dims):
        return f"shape {text}: every extent must be at least 1"
    if len(dims) > MAX_AXES:
        return f"a shape of {len(dims)} axes: a blob has at most {MAX_AXES}"
    if prod(dims) > MAX_ELEMENTS:
        return f"shape {text}: that is {prod(dims)} elements, and a blob holds at most {MAX_ELEMENTS}"
    return None


def path_faults(message: Message) -> Iterator[tuple[str, str]]:
    """Field and fault of each path that has a control character: in prototxt, a backslash begins an escape, as in C."""
    for field, value in message.ListFields():
        values = value if field.is_repeated else [value]
        if field.message_type is not None:
            for each in values:
                yield from path_faults(each)
        elif field.name in PATHS:
            for each in values:
                if any(character < " " for character in each):
                    yield field.name, f"has a control character in {field.name}, {each!r}; write / or \\\\ for each \\"


def layer_fault(layer: Message) -> str | None:
    """The fault of a layer on its own, as the end of the sentence "layer x ..."; None if there is none."""
    if not layer.type:
        return 'has no type; add one, such as type: "Convolution"'
    for _, escape in path_faults(layer):
        return escape
    for dims in _stated_shapes(layer):
        if fault := shape_fault(dims):
            return f"asks for {fault}"
    return None


def _stated_shapes(layer: Message) -> Iterator[Sequence[int]]:
    """Yield every shape that the layer states, except in Reshape, where 0 and -1 stand for axes of the bottom."""
    for shape in (*layer.input_param.shape, *layer.dummy_data_param.shape):
        yield shape.dim
    if layer.memory_data_param.dim:
        yield layer.memory_data_param.dim
    if layer.parameter_param.HasField("shape"):
        yield layer.parameter_param.shape.dim
    old = layer.dummy_data_param
    yield from zip(old.num, old.channels, old.height, old.width)
