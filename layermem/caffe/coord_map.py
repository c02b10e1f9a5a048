"""`caffe.coord_map`: maps pixels of one top to pixels of another, to crop the first to the second (as FCN does).

The pixel at `x` of a layer's bottom is at `scale * x + shift` of its top.  For a kernel of extent k (with dilation),
stride s and padding p:

    Convolution, Pooling, Im2col    scale 1/s, shift (p - (k - 1) / 2) / s
    Deconvolution                   scale s,   shift (k - 1) / 2 - p
    Crop                            scale 1,   shift -offset
    layers that may work in place   scale 1,   shift 0

source  Caffe python/caffe/coord_map.py (names; the mapping of a layer)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from layermem.errors import InputError
from layermem.layers.base import LAYERS, Layer
from layermem.spec import Function, L, Top

Floats = npt.NDArray[np.float64]


class Map(NamedTuple):
    """A scale and a shift for each spatial axis after `axis` (None: all axes)."""

    axis: int | None
    scale: Floats
    shift: Floats

    def then(self, other: Map) -> Map:
        """This map followed by `other`."""
        if None not in (self.axis, other.axis) and self.axis != other.axis:
            raise InputError(
                f"layers map axes {self.axis} and {other.axis}; use layers with the same axis between them"
            )
        axis = self.axis if self.axis is not None else other.axis
        return Map(axis, self.scale * other.scale, other.scale * self.shift + other.shift)

    def inverse(self) -> Map:
        return Map(self.axis, 1 / self.scale, -self.shift / self.scale)


class CannotCrop(InputError, AssertionError):
    """No crop makes two tops equal."""


IDENTITY = Map(None, np.ones(1), np.zeros(1))


def coord_map(fn: Function) -> Map | None:
    """The map from a layer's first bottom to its top; None for layers without such a map."""
    layer = LAYERS.get(fn.type_name, Layer)
    if layer.inplace or fn.type_name == "Split":
        return IDENTITY
    if fn.type_name == "Crop":
        given = fn.params.get("crop_param", fn.params)
        return Map(given.get("axis", 2) - 1, np.ones(1), -_numbers(given.get("offset", 0)))
    if not layer.window_block:
        return None
    given = fn.params.get(layer.window_block, fn.params)
    if uneven := [name for name in given if name.endswith(("_h", "_w"))]:
        raise CannotCrop(f"crop does not read {uneven[0]} of a {fn.type_name}; give kernel_size, stride and pad")
    stride, pad = _numbers(given.get("stride", 1)), _numbers(given.get("pad", 0))
    half = (_numbers(given["kernel_size"]) - 1) * _numbers(given.get("dilation", 1)) / 2
    if fn.type_name == "Deconvolution":
        return Map(given.get("axis", 1), stride, half - pad)
    return Map(given.get("axis", 1), 1 / stride, (pad - half) / stride)


def coord_map_from_to(top_from: Top, top_to: Top) -> Map:
    """The map from the coordinates of `top_from` to those of `top_to`, through a common ancestor."""
    of_from, of_to = _ancestors(top_from), _ancestors(top_to)
    common = next((top for top in of_to if top in of_from), None)
    if common is None:
        raise InputError("the tops come from no common one by layers with windows; connect them, or use L.Crop")
    return of_from[common].inverse().then(of_to[common])


def crop(top_from: Top, top_to: Top) -> Top:
    """Return a Crop layer that cuts `top_from` to the pixels of `top_to`."""
    axis, scale, shift = coord_map_from_to(top_from, top_to)
    if np.any(scale != 1):
        raise CannotCrop(
            f"the tops differ in scale by {scale.tolist()}, which no crop changes; use strides that cancel out"
        )
    offset = 0 - shift
    if np.any(offset < 0) or np.any(offset != np.round(offset)):
        raise CannotCrop(
            f"a crop would begin at {offset.tolist()}; change the pads, so that it is a whole number from 0"
        )
    return L.Crop(top_from, top_to, axis=(1 if axis is None else axis) + 1, offset=[int(each) for each in offset])


def _ancestors(top: Top) -> dict[Top, Map]:
    """The ancestors of `top`, nearest first, with the map from each of them to `top`."""
    maps, waiting = {top: IDENTITY}, [top]
    for each in waiting:
        here = coord_map(each.fn)
        for bottom in each.fn.inputs[:1] if each.fn.type_name == "Crop" else each.fn.inputs:
            if here is not None and bottom not in maps:
                maps[bottom] = here.then(maps[each])
                waiting.append(bottom)
    return maps


def _numbers(value: Any) -> Floats:
    return np.atleast_1d(np.asarray(value, np.float64))
