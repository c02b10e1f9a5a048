"""The ONNX graph of a net while it is written: nodes, constants, and the names of blobs.

    OnnxGraph   the nodes and constants of a net so far
    Piece   the exporter's view of one layer: names and shapes of its blobs, its parameters, and `emit`

All shapes are Caffe's.  Names of intermediate values begin with that of their layer and a slash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from layermem.integrations.onnx.library import onnx_library
from layermem.layers import Layer
from layermem.proto.schema import Message

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
OPSET = 13  # opset of written files: ONNX Runtime, OpenCV and converters of 2021 and later read it

CASTS = {"float32": {"to": 1}, "int64": {"to": 7}}  # TensorProto.DataType


class Link(NamedTuple):
    """An operator whose first input is the result of the previous one."""

    op: str
    more: tuple[str, ...] = ()  # the other inputs
    attributes: Mapping[str, Any] = {}


def _free(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    taken.add(name)
    return name


@dataclass
class OnnxGraph:
    """Nodes in order, and the constants that they read.

    values    parameters of the net by name, in Caffe's shapes
    silenced  blobs that are no outputs, although no node reads them
    """

    values: Mapping[str, Array]
    nodes: list[Any] = field(default_factory=list)  # NodeProto
    constants: dict[str, Array] = field(default_factory=dict)
    silenced: set[str] = field(default_factory=set)
    scores: dict[str, Shape] = field(default_factory=dict)  # outputs that replace losses
    one_loss: bool = True
    _taken: set[str] = field(default_factory=set)  # names of values
    _nodes: set[str] = field(default_factory=set)  # names of nodes

    def free_name(self, wanted: str) -> str:
        """`wanted`, with a number if a value has that name."""
        return _free(wanted, self._taken)

    def constant(self, name: str, value: Array) -> str:
        """The name of a constant; a constant with the same name and shape is reused."""
        for known in (name, f"{name}:{'x'.join(map(str, value.shape))}"):
            if known in self.constants:
                other = self.constants[known]
                if other.shape == value.shape and other.dtype == value.dtype and np.array_equal(other, value):
                    return known
            elif known not in self._taken:
                self._taken.add(known)
                self.constants[known] = value
                return known
        name = self.free_name(name)
        self.constants[name] = value
        return name

    def add(
        self, name: str, op: str, inputs: Sequence[str], outputs: Sequence[str], attributes: Mapping[str, Any]
    ) -> None:
        node = onnx_library().helper.make_node(op, list(inputs), list(outputs), _free(name, self._nodes), **attributes)
        self.nodes.append(node)


@dataclass
class Piece:
    """The exporter's interface to one layer of a net, or to a part of one.

    inputs, outputs   names of its blobs in the ONNX graph
    x, y              their shapes
    params            names of its parameters, the keys of OnnxGraph.values
    """

    graph: OnnxGraph
    name: str
    type: str
    message: Message
    layer: Layer
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    x: tuple[Shape, ...]
    y: tuple[Shape, ...]
    params: tuple[str, ...]

    def emit(self, op: str, *inputs: str, top: int | None = None, **attributes: Any) -> str:
        """Write one operator with one result, top `top` or an intermediate value; return its name."""
        result = self.graph.free_name(f"{self.name}/{op}") if top is None else self.outputs[top]
        self.graph.add(self.name if top is not None else result, op, inputs, [result], attributes)
        return result

    def emit_many(self, op: str, *inputs: str, outputs: Sequence[str], **attributes: Any) -> None:
        """Write one operator with several results."""
        self.graph.add(self.name, op, inputs, outputs, attributes)

    def scores(self, link: Link) -> None:
        """Write an output of the net that replaces a loss, in the shape of its first bottom: `prob`, or with several
        losses the name of each followed by /prob."""
        name = self.graph.free_name("prob" if self.graph.one_loss else f"{self.name}/prob")
        self.graph.add(self.name, link.op, (self.inputs[0], *link.more), [name], link.attributes)
        self.graph.scores[name] = self.x[0]

    def temporary(self, name: str) -> str:
        """A free name for an intermediate value."""
        return self.graph.free_name(f"{self.name}/{name}")

    def chain(self, value: str, *links: Link, top: int = 0) -> None:
        """Write operators, each on the result of the previous one; the last one makes top `top`."""
        links = links or (Link("Identity"),)
        for link in links[:-1]:
            value = self.emit(link.op, value, *link.more, **link.attributes)
        last = links[-1]
        self.emit(last.op, value, *last.more, top=top, **last.attributes)

    def cast(self, value: str, dtype: str) -> str:
        """Convert `value` to another element type."""
        return self.emit("Cast", value, **CASTS[dtype])

    def constant(self, name: str, value: npt.ArrayLike, dtype: str = "float32") -> str:
        """Write a constant of this layer and return its name."""
        return self.graph.constant(f"{self.name}/{name}", np.asarray(value, dtype))

    def value(self, index: int) -> Array:
        """Parameter `index`, in Caffe's shape."""
        return self.graph.values[self.params[index]]

    def weight(self, index: int, shape: Shape | None = None) -> str:
        """Parameter `index` as a constant, under other axes if `shape` says so."""
        value = self.value(index)
        return self.graph.constant(self.params[index], value if shape is None else value.reshape(shape))

    def reshaped(self, value: str, old: Shape, new: Shape) -> str:
        """Reshape `value` from shape `old` to `new`; return it unchanged if they are equal."""
        return value if old == new else self.emit("Reshape", value, self.shape_constant(new))

    def reshape_link(self, old: Shape, new: Shape) -> tuple[Link, ...]:
        """A Reshape at the end of a chain, if the shapes differ."""
        return () if old == new else (Link("Reshape", (self.shape_constant(new),)),)

    def shape_constant(self, shape: Shape) -> str:
        """Write a shape for Reshape.  Its first axis is inferred, so that other batch sizes work."""
        dims = (-1, *shape[1:]) if shape and 0 not in shape else shape
        return self.constant("shape", dims, "int64")
