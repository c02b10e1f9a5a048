"""The importer's view of a node in an ONNX model, and the table of importers.

@imports("Relu")
def relu(node): node.make("ReLU", node.blob(0))

Accessors check their results: a node that does not fit is refused by name with an InputError, never another exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from layermem.errors import InputError
from layermem.integrations.onnx.graph import Shape
from layermem.integrations.onnx.net_writer import Constant, NetValue, NetWriter, Padding, Value
from layermem.proto.schema import Message

IMPORTERS: dict[str, Callable[[OnnxNode], None]] = {}
OPERATORS: dict[str, str] = {}  # the layers that each operator becomes, for the documentation


def imports(*operators: str, layers: str) -> Callable[[Callable[[OnnxNode], None]], Callable[[OnnxNode], None]]:
    """Register a function that imports nodes of these operators."""

    def register(read: Callable[[OnnxNode], None]) -> Callable[[OnnxNode], None]:
        for each in operators:
            IMPORTERS[each] = read
            OPERATORS[each] = layers
        return read

    return register


@dataclass
class Model:
    """The known values of a model.

    consumers   the nodes that read a value;  outputs   names of the outputs of the model
    """

    net: NetWriter
    opset: int
    values: dict[str, Value] = field(default_factory=dict)
    consumers: dict[str, list[Any]] = field(default_factory=dict)
    outputs: set[str] = field(default_factory=set)
    done: set[int] = field(default_factory=set)  # ids of nodes that an earlier one absorbed


@dataclass
class OnnxNode:
    """A node; all its accessors raise InputError for values that are absent or of another kind."""

    proto: Any  # NodeProto
    name: str
    model: Model

    @property
    def op(self) -> str:
        return str(self.proto.op_type)

    @property
    def opset(self) -> int:
        return self.model.opset

    # -- inputs ------------------------------------------------------------------------------------------------

    def has(self, index: int) -> bool:
        return index < len(self.proto.input) and bool(self.proto.input[index])

    @property
    def input_count(self) -> int:
        return len(self.proto.input)

    def value(self, index: int) -> Value:
        if not self.has(index):
            raise InputError(f"has no input {index}; export the model again")
        name = self.proto.input[index]
        if name not in self.model.values:
            raise InputError(f"reads '{name}', which no earlier node makes; export the model again")
        return self.model.values[name]

    def is_constant(self, index: int) -> bool:
        return isinstance(self.value(index), Constant)

    def blob(self, index: int, *, padded: bool = False) -> NetValue:
        """An input that the net computes; with `padded`, the node accepts pads."""
        value = self.value(index)
        if isinstance(value, Constant):
            return self.constant_blob(value)
        if value.pads and not padded:
            raise InputError("reads a padded blob; Caffe pads in convolutions and poolings only: remove the Pad")
        return value

    def constant_blob(self, value: Constant) -> NetValue:
        """Make a constant a blob, by a Parameter layer."""
        shape = value.array.shape
        if not shape:
            raise InputError(
                "computes with a number where a blob is needed; fold constants before you export the model"
            )
        layer = self.layer("Parameter", "constant")
        layer.parameter_param.shape.dim.extend(shape)
        return self.model.net.finish(layer, (), (None,), (value,))[0]

    def constant(self, index: int) -> Constant:
        value = self.value(index)
        if not isinstance(value, Constant):
            raise InputError(f"computes its input {index}; layermem takes a constant there: fold it before you export")
        return value

    def ints(self, index: int, attribute: str = "", default: Sequence[int] | None = None) -> list[int]:
        """A list of integers: an attribute of older opsets, or a constant input of newer ones."""
        if attribute and self.attribute(attribute) is not None:
            return self.ints_attribute(attribute)
        if not self.has(index):
            if default is None:
                raise InputError(f"does not state its {attribute or 'numbers'}; export the model again")
            return list(default)
        array = self.constant(index).array
        if array.dtype.kind not in "iu" or array.size > 64:
            raise InputError(f"has an input {index} that is no short list of integers; export the model again")
        return [int(each) for each in array.reshape(-1)]

    def number(self, index: int) -> float:
        array = self.constant(index).array
        if array.size != 1 or array.dtype.kind not in "fiub":
            raise InputError(f"has an input {index} that is not one number; layermem takes one there: export it so")
        return float(array.reshape(-1)[0])

    # -- attributes --------------------------------------------------------------------------------------------

    def attribute(self, name: str) -> Any:
        return next((each for each in self.proto.attribute if each.name == name), None)

    def _typed(self, name: str, kind: int) -> Any:
        found = self.attribute(name)
        if found is not None and found.type != kind:
            raise InputError(f"has an attribute '{name}' of another type; export the model again")
        return found

    def int_attribute(self, name: str, default: int) -> int:
        found = self._typed(name, 2)
        return default if found is None else int(found.i)

    def float_attribute(self, name: str, default: float) -> float:
        found = self._typed(name, 1)
        return default if found is None else float(found.f)

    def ints_attribute(self, name: str, default: Sequence[int] = ()) -> list[int]:
        found = self._typed(name, 7)
        numbers = list(default) if found is None else list(found.ints)
        if len(numbers) > 64:
            raise InputError(f"has {len(numbers)} numbers in '{name}'; a blob has no so many axes: export it again")
        return numbers

    def text_attribute(self, name: str, default: str) -> str:
        found = self._typed(name, 3)
        return default if found is None else found.s.decode("utf-8", "replace")

    def axis(self, default: int, rank: int, name: str = "axis") -> int:
        return self.axis_of(self.int_attribute(name, default), rank)

    def axis_of(self, axis: int, rank: int) -> int:
        if not -rank <= axis < rank:
            raise InputError(f"names axis {axis} of a blob of {rank} axes; export the model again")
        return axis % rank

    # -- results -----------------------------------------------------------------------------------------------

    def layer(self, kind: str, suffix: str = "") -> Message:
        """A new layer of this node."""
        return self.model.net.layer(f"{self.name}/{suffix}" if suffix else self.name, kind)

    def top(self, output: int = 0) -> str | None:
        """The model's name of a result, if it is an output of the model; otherwise None."""
        name = self.proto.output[output] if output < len(self.proto.output) else ""
        return name if name in self.model.outputs else None

    def result(self, value: Value, output: int = 0) -> None:
        """Set a result of this node.  An output of the model keeps its name."""
        name = self.proto.output[output]
        if isinstance(value, NetValue) and name in self.model.outputs and value.name != name:
            value = self.model.net.finish(self.layer("Split", "output"), (self.plain(value),), (name,))[0]
        self.model.values[name] = value

    def plain(self, value: NetValue) -> NetValue:
        if value.pads:
            raise InputError("makes a padded blob, which Caffe has in convolutions and poolings only: remove the Pad")
        return value

    def make(self, layer: Message | str, *bottoms: NetValue, blobs: Sequence[Constant] = ()) -> None:
        """Add a layer whose top is the result of this node."""
        message = self.layer(layer) if isinstance(layer, str) else layer
        self.result(self.model.net.finish(message, bottoms, (self.top(),), blobs)[0])

    def between(self, layer: Message, *bottoms: NetValue, blobs: Sequence[Constant] = ()) -> NetValue:
        """Add a layer whose top is no result of the model, and return the top."""
        return self.model.net.finish(layer, bottoms, (None,), blobs)[0]

    def reshape(self, value: NetValue, shape: Shape, suffix: str) -> NetValue:
        """`value` with other axes, by a Reshape layer if they differ.  The first axis stays open."""
        if value.shape == shape:
            return value
        layer = self.reshape_layer(value.shape, shape, suffix)
        return self.between(layer, value)

    def reshape_layer(self, old: Shape, new: Shape, suffix: str = "") -> Message:
        layer = self.layer("Reshape", suffix)
        first = (0,) if old[:1] == new[:1] and new else new[:1]
        layer.reshape_param.shape.dim.extend((*first, *new[1:]))
        return layer

    def only_consumer(self, op: str, output: int = 0) -> OnnxNode | None:
        """The only node that reads a result, if it is an `op`, so that this node may absorb it."""
        name = self.proto.output[output]
        readers = self.model.consumers.get(name, [])
        if len(readers) != 1 or readers[0].op_type != op or name in self.model.outputs:
            return None
        return OnnxNode(readers[0], self.name, self.model)

    def is_read(self, output: int) -> bool:
        """Whether a node reads a result, or the model gives it."""
        name = self.proto.output[output]
        return name in self.model.outputs or bool(self.model.consumers.get(name))

    def take(self, other: OnnxNode) -> None:
        """Absorb the node `other`: its results are made here."""
        self.model.done.add(id(other.proto))
        del self.proto.output[:]
        self.proto.output.extend(other.proto.output)

    def known(self, index: int) -> Constant | None:
        """A constant input, or None if it is computed or absent."""
        value = self.model.values.get(self.proto.input[index]) if self.has(index) else None
        return value if isinstance(value, Constant) else None


@contextmanager
def located(path: str, op: str, name: str) -> Iterator[None]:
    """Add the failing node to errors."""
    try:
        yield
    except InputError as error:
        raise InputError(f"node '{name}' ({op}) {error.what}", path=path) from None
    except (ValueError, TypeError, IndexError, KeyError, OverflowError, MemoryError) as error:
        first = str(error).partition("\n")[0][:120]
        what = f"has attributes or inputs that do not fit ({first}); export the model again"
        raise InputError(f"node '{name}' ({op}) {what}", path=path) from None


__all__ = [
    "IMPORTERS",
    "OPERATORS",
    "Constant",
    "Model",
    "NetValue",
    "OnnxNode",
    "Padding",
    "Value",
    "imports",
    "located",
]
