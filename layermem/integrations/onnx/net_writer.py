"""The net of an ONNX model while it is read: its layers so far, their weights, and the kinds of ONNX values.

NetValue  a blob of the net, with its shape; `pads` if a Pad operator is merged into the next window
Constant  a known array, with the name of its initializer
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from layermem.errors import InputError
from layermem.integrations.onnx.graph import Array, Shape
from layermem.layers import Tensor, make_layer
from layermem.layers.base import Param
from layermem.layers.composite import COMPOSITES
from layermem.proto.schema import TEST, LayerParameter, Message, NetParameter


class Padding(NamedTuple):
    """The pads of a Pad operator along each axis, before and after, and the padding value."""

    before: tuple[int, ...]
    behind: tuple[int, ...]
    value: float


class NetValue(NamedTuple):
    name: str
    shape: Shape  # shape in the net, without `pads`
    pads: Padding | None = None


class Constant(NamedTuple):
    array: Array
    name: str = ""


Value = NetValue | Constant


@dataclass
class NetWriter:
    """layers, weights   in the order of the net; weights by layer name, in the form of proto/weights.py"""

    message: Message = field(default_factory=NetParameter)
    weights: dict[str, tuple[str, list[Array]]] = field(default_factory=dict)
    _layers: set[str] = field(default_factory=set)
    _blobs: set[str] = field(default_factory=set)
    _owners: dict[str, tuple[Message, int]] = field(default_factory=dict)  # initializer -> its first layer and index

    def reserve(self, names: Sequence[str]) -> None:
        """Reserve names of blobs for inputs and outputs of the model."""
        self._blobs.update(names)

    def free(self, wanted: str, taken: set[str]) -> str:
        name, number = wanted, 1
        while name in taken:
            number += 1
            name = f"{wanted}_{number}"
        taken.add(name)
        return name

    def layer(self, name: str, kind: str) -> Message:
        """A new layer, which `finish` adds to the net."""
        return LayerParameter(name=self.free(name, self._layers), type=kind)

    def rename(self, name: str, wanted: str) -> str:
        """Give a layer that is not finished another name."""
        self._layers.discard(name)
        return self.free(wanted, self._layers)

    def finish(
        self, layer: Message, bottoms: Sequence[NetValue], tops: Sequence[str | None], blobs: Sequence[Constant] = ()
    ) -> list[NetValue]:
        """Add a layer with its weights; return its tops, with reserved names or the name of the layer.

        InputError if layermem has no such layer on these bottoms.
        """
        layer.bottom[:] = [each.name for each in bottoms]
        layer.top[:] = [top if top is not None else self.free(layer.name, self._blobs) for top in tops]
        shapes, params = _made(layer, [Tensor(each.shape) for each in bottoms])
        arrays = []
        for constant, param in zip(blobs, params, strict=True):
            if constant.array.size != param.tensor.count:
                raise InputError(
                    f"has weights of {Tensor(constant.array.shape)} for {Tensor(param.shape)}; make them fit"
                )
            arrays.append(np.asarray(constant.array, np.float32).reshape(param.shape))
        self.message.layer.append(layer)
        self._share(self.message.layer[-1], blobs)
        if arrays:
            self.weights[layer.name] = (layer.type, arrays)
        return [NetValue(name, shape) for name, shape in zip(layer.top, shapes, strict=True)]

    def _share(self, layer: Message, blobs: Sequence[Constant]) -> None:
        """Give parameters that share an initializer the same name."""
        for index, constant in enumerate(blobs):
            if constant.name:
                first = self._owners.setdefault(constant.name, (layer, index))
                if first[0] is not layer:
                    for owner, at in (first, (layer, index)):
                        while len(owner.param) <= at:
                            owner.param.add()
                        owner.param[at].name = constant.name


def _made(layer: Message, bottoms: Sequence[Tensor]) -> tuple[list[Shape], list[Param]]:
    """The shapes of the tops of a layer, and its parameters, those of its parts if it consists of several."""
    parts = COMPOSITES[layer.type](layer, bottoms, []) if layer.type in COMPOSITES else [layer]
    known = dict(zip(layer.bottom, bottoms, strict=True))
    params: list[Param] = []
    for part in parts:
        made = make_layer(part, TEST, [known[name] for name in part.bottom])
        known.update(zip(part.top, made.tops, strict=True))
        params += made.params
    return [known[name].shape for name in layer.top], params
