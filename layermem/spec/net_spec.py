"""Nets as Python: a Function describes a layer, a Top is one of its outputs, and a NetSpec names tops.

    n = NetSpec()
    n.data, n.label = L.Data(source="train_lmdb", backend=P.Data.LMDB, batch_size=64, ntop=2)
    n.ip1 = L.InnerProduct(n.data, num_output=10, weight_filler=dict(type="xavier"))
    n.relu1 = L.ReLU(n.ip1, in_place=True)
    n.loss = L.SoftmaxWithLoss(n.relu1, n.label)
    print(n.to_proto())

Layers follow in the order in which tops were assigned, each after those that it reads.  A top without a name gets its
type and a number: Convolution1.

source  Caffe python/caffe/net_spec.py
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from layermem.errors import InputError
from layermem.proto.read import NetFile, net_of_message
from layermem.proto.schema import LayerParameter, Message, NetParameter
from layermem.spec.fields import set_field
from layermem.utils.similar import did_you_mean

Place = tuple[str, int]
PACKAGE = str(Path(__file__).parent)
NAMES_SHOWN = 12


def caller() -> Place:
    """File and line of the user's code that called into this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


class Top:
    """Output number `n` of the layer `fn`."""

    def __init__(self, fn: Function, n: int):
        self.fn, self.n = fn, n

    def to_proto(self) -> Message:
        """The NetParameter of all layers that this top needs."""
        return to_proto(self)

    def __repr__(self) -> str:
        return f"<Top {self.n} of {self.fn.type_name}>"


class NotATop(InputError, TypeError):
    """A bottom of a layer is no top of another one.  The text is pycaffe's, which scripts compare."""

    def __str__(self) -> str:
        return self.what

    @property
    def lines(self) -> list[str]:
        return [f"{self.path}:{self.line}: {self.what}; give it a top, such as one of a tuple of them"]


class Function:
    """A layer of type `type_name` that reads `inputs`, with the fields `params`; its outputs are `tops`.

    `place` is the file and line that created it.  Wrong fields are errors there, or in to_proto if it is `lazy`."""

    def __init__(
        self,
        type_name: str,
        inputs: Sequence[Top],
        params: Mapping[str, Any],
        *,
        ntop: int = 1,
        in_place: bool = False,
        lazy: bool = False,
    ):
        self.type_name, self.inputs, self.params = type_name, tuple(inputs), dict(params)
        self.ntop, self.in_place, self.lazy, self.place = ntop, in_place, lazy, caller()
        self.tops = tuple(Top(self, n) for n in range(ntop))
        path, line = self.place
        for index, each in enumerate(self.inputs):
            if not isinstance(each, Top):
                raise NotATop(f"{type_name} input {index} is not a Top (type is {type(each)})", path=path, line=line)
        if not lazy:
            self._message()

    def to_proto(self) -> Message:
        """The NetParameter of this layer and all that it needs."""
        return to_proto(self)

    def update(self, params: Mapping[str, Any]) -> None:
        """Set fields; they replace earlier values."""
        before = self.params
        self.params = {**before, **params}
        try:
            if not self.lazy:
                self._message()
        except InputError:
            self.params = before
            raise

    def _message(self) -> Message:
        """The LayerParameter, without names of blobs but those in its own fields."""
        layer, (path, line) = LayerParameter(type=self.type_name), self.place
        try:
            for name, value in self.params.items():
                set_field(layer, name, value)
            if layer.top and (self.in_place or len(layer.top) != self.ntop != 0):
                tops = "the tops are the bottoms (in_place)" if self.in_place else f"there are {self.ntop} (ntop)"
                raise InputError(f"L.{self.type_name} names {len(layer.top)} tops, and {tops}; make them agree")
        except InputError as error:
            raise error.at(path=path, line=line) from None
        return layer

    def __repr__(self) -> str:
        return f"<Function {self.type_name}>"


class _Writer:
    """Writes Functions as layers, in order, with names."""

    def __init__(self, names: Mapping[Top | Function, str]):
        self.names = dict(names)
        self.numbers: Counter[str] = Counter()
        self.layers: dict[Function, Message] = {}

    def add(self, last: Top | Function) -> None:
        """Add the layer of `last` after all that it reads; without recursion, because nets may be thousands of layers
        deep."""
        stack = [_function(last)]
        while stack:
            function = stack[-1]
            if function in self.layers:
                stack.pop()
                continue
            missing = [top.fn for top in reversed(function.inputs) if top.fn not in self.layers]
            if missing:
                stack.extend(missing)
            else:
                self.layers[stack.pop()] = self._layer(function)

    def _layer(self, function: Function) -> Message:
        given = function._message()
        layer = LayerParameter(type=function.type_name)
        layer.bottom.extend(self.layers[top.fn].top[top.n] for top in function.inputs)
        if function.in_place:
            layer.top.extend(layer.bottom)
        elif not given.top:
            layer.top.extend(self._name(top) for top in function.tops)
        layer.name = self.names.get(function) or self._name(function.tops[0] if function.tops else function)
        layer.MergeFrom(given)
        return layer

    def _name(self, of: Top | Function) -> str:
        if of not in self.names:
            kind = _function(of).type_name
            self.numbers[kind] += 1
            self.names[of] = f"{kind}{self.numbers[kind]}"
        return self.names[of]

    def net(self) -> Message:
        net = NetParameter()
        net.layer.extend(self.layers.values())
        return net


def _function(of: Top | Function) -> Function:
    return of.fn if isinstance(of, Top) else of


def to_proto(*tops: Top | Function) -> Message:
    """The NetParameter of all layers that `tops` need, with names by type: Data1, Convolution1, ...

    `str()` of it is a prototxt.
    """
    writer = _Writer({})
    for top in tops:
        writer.add(top)
    return writer.net()


class MissingTop(InputError, AttributeError, KeyError):
    """A NetSpec has no top of that name."""


class NetSpec:
    """A net under construction: `n.conv1 = L.Convolution(n.data, ...)` names a top and thereby its layer.

    n.conv1, n["conv1"]   read, assign or delete a top; names that are no identifiers need brackets
    """

    tops: dict[str, Top | Function]

    def __init__(self) -> None:
        super().__setattr__("tops", {})

    def __setattr__(self, name: str, value: Top | Function) -> None:
        if not isinstance(value, Top | Function):
            path, line = caller()
            what = f"n.{name} is given {type(value).__name__}; give it a layer's top"
            if isinstance(value, tuple):
                what = f"n.{name} is given {len(value)} tops; give each a name: n.{name}, n.other = L.."
            raise InputError(what, path=path, line=line)
        self.tops[name] = value

    def __getattr__(self, name: str) -> Top:
        if name not in self.tops:
            if name.startswith("__"):
                raise AttributeError(name)
            path, line = caller()
            known = list(self.tops)
            listed = f"it has {' '.join(known[-NAMES_SHOWN:]) or 'none'}"
            hint = did_you_mean(name, known) or f"assign it before it is read ({listed})"
            raise MissingTop(f"this net has no top '{name}'; {hint}", path=path, line=line)
        return self.tops[name]  # type: ignore[return-value]  # a Function only where ntop is 0

    def __delattr__(self, name: str) -> None:
        getattr(self, name)
        del self.tops[name]

    __setitem__, __getitem__, __delitem__ = __setattr__, __getattr__, __delattr__

    def __contains__(self, name: str) -> bool:
        return name in self.tops

    def __dir__(self) -> list[str]:
        return [*object.__dir__(self), *self.tops]

    def __repr__(self) -> str:
        return f"<NetSpec: {' '.join(self.tops) or 'empty'}>"

    def keys(self) -> list[str]:
        """The names, in the order of assignment."""
        return list(self.tops)

    def vals(self) -> list[Top | Function]:
        """The tops, in the same order."""
        return list(self.tops.values())

    def update(self, name: str, params: Mapping[str, Any]) -> None:
        """Set fields of the layer of the top `name`."""
        _function(self[name]).update(params)

    def to_proto(self) -> Message:
        """The NetParameter of all layers that the named tops need; `str()` of it is a prototxt."""
        return self._writer().net()

    def _writer(self) -> _Writer:
        writer = _Writer({top: name for name, top in self.tops.items()})
        for top in self.tops.values():
            writer.add(top)
        return writer


def net_file(spec: NetSpec) -> NetFile:
    """The net of a NetSpec in the form that layermem reads; errors name the script and the line of a layer."""
    writer = spec._writer()
    places = [function.place for function in writer.layers]
    path = places[0][0] if places else caller()[0]
    return net_of_message(writer.net(), path, [line if file == path else None for file, line in places])
