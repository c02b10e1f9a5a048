"""L: a function for each layer type.

    L.Convolution(n.data, kernel_size=5, num_output=20, weight_filler=dict(type="xavier"))

source  Caffe python/caffe/net_spec.py (Layers)
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, Protocol, cast, overload

from layermem.errors import InputError
from layermem.layers.base import type_remedy
from layermem.layers.known_types import known_types
from layermem.proto.remedy import expected_value
from layermem.spec.fields import BLOCKS, LAYER_FIELDS
from layermem.spec.net_spec import Function, Top, caller


class LayerFunction(Protocol):
    """L.Type(*bottoms, ntop=1, in_place=False, **fields) returns its top, a tuple of tops, or a Function for ntop=0."""

    @overload
    def __call__(self, *bottoms: Top, ntop: Literal[1] = 1, in_place: bool = False, **fields: Any) -> Top: ...
    @overload
    def __call__(self, *bottoms: Top, ntop: Literal[0], in_place: bool = False, **fields: Any) -> Function: ...
    @overload
    def __call__(self, *bottoms: Top, ntop: int, in_place: bool = False, **fields: Any) -> tuple[Top, ...]: ...


class Layers:
    """The class of `layermem.L`: L.Type(*bottoms, ntop=1, in_place=False, **fields) is a layer of that type.

    bottoms    tops of other layers
    ntop       number of tops: the result is one Top, a tuple of them, or for 0 a Function
    in_place   whether the tops are the bottoms
    fields     fields of the type's block (kernel_size=5), or of LayerParameter (include=dict(phase=..),
               param=[dict(lr_mult=1)], loss_weight=0.3, convolution_param=dict(..))

    `dir(layermem.L)` lists the types, `help(layermem.L.Convolution)` the fields of one.  InputError for an unknown type
    or field, with the line where it is written.  If it is `lazy`, as `caffe.layers` is, to_proto checks the fields, and
    writes layers of any type.
    """

    def __init__(self, *, lazy: bool = False):
        self._lazy = lazy

    def __getattr__(self, name: str) -> LayerFunction:
        if name.startswith("_"):
            raise AttributeError(f"L has no '{name}'")
        if name not in known_types() and not self._lazy:
            path, line = caller()
            raise UnknownType(
                f"layermem has no layer type '{name}'{type_remedy(name, known_types())}", path=path, line=line
            )
        return _function(name, self._lazy)

    def __dir__(self) -> list[str]:
        return known_types()

    def __repr__(self) -> str:
        return "<layermem.L: a function for each layer type>"


class UnknownType(InputError, AttributeError):
    """A layer type that layermem does not have."""


L = Layers()


@cache
def _function(name: str, lazy: bool) -> LayerFunction:
    def layer(*bottoms: Top, ntop: int = 1, in_place: bool = False, **fields: Any) -> Top | Function | tuple[Top, ...]:
        function = Function(name, bottoms, fields, ntop=ntop, in_place=in_place, lazy=lazy)
        if ntop == 0:
            return function
        return function.tops[0] if ntop == 1 else function.tops

    layer.__name__, layer.__qualname__, layer.__doc__ = name, f"L.{name}", _documentation(name)
    return cast(LayerFunction, layer)


def _documentation(name: str) -> str:
    block = BLOCKS.get(name)
    if block is None:
        return f"A layer of type {name}.  It has no block of its own: fields are those of LayerParameter."
    lines = [f"A layer of type {name}.  Fields of its {block}:", ""]
    for field in LAYER_FIELDS[block].message_type.fields:
        takes = "a dict" if field.message_type is not None else expected_value(field)
        default = f" (default {field.default_value!r})" if field.has_default_value and field.enum_type is None else ""
        lines.append(f"    {field.name}: {'list of ' if field.is_repeated else ''}{takes}{default}")
    return "\n".join(lines)
