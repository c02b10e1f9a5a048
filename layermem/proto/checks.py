"""Checks of a single layer: a missing type, or a shape that is impossible for a blob.

Checks that involve other layers (bottoms, sizes that follow from others) are in graph/.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from layermem.proto.schema import Message

MAX_AXES = 32  # Caffe's bounds for a blob
MAX_ELEMENTS = 2**31 - 1


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


def layer_fault(layer: Message) -> str | None:
    """The fault of a layer on its own, as the end of the sentence "layer x ..."; None if there is none."""
    if not layer.type:
        return 'has no type; add one, such as type: "Convolution"'
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
