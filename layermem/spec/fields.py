"""Converts Python values to fields of Caffe's messages.

    assign(layer.pooling_param, "kernel_size", 2, "L.Pooling")
    assign(layer, "param", [dict(lr_mult=1), dict(lr_mult=2)], "L.Pooling")

    a dict is a message; a list, tuple or array is a repeated field, and a single value is one of length 1
    enums take numbers (P.Pooling.MAX) and names ("MAX")

source  Caffe python/caffe/net_spec.py (assign_proto)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from layermem.errors import InputError
from layermem.layers import LAYERS
from layermem.proto.forks import owner_name, refusal
from layermem.proto.remedy import expected_value
from layermem.proto.schema import LayerParameter, Message
from layermem.utils.similar import did_you_mean
from layermem.utils.text import printable

SUFFIX = "_param"
LAYER_FIELDS = LayerParameter.DESCRIPTOR.fields_by_name
OF_CALLS = ("name", "type", "bottom", "top")  # fields that a call sets itself, so no hint names them
KINDS = {8: "a bool", 9: "a string", 12: "bytes"}  # names for users, by type number of FieldDescriptor
MAX_QUOTED = 40  # letters of a value in an error


def block_names() -> dict[str, str]:
    """Layer types and the block of each: named after the type, such as pooling_param of Pooling, or a shared one."""
    blocks = [field for field in LAYER_FIELDS.values() if field.name.endswith(SUFFIX)]
    named = {field.message_type.name.removesuffix("Parameter"): field.name for field in blocks}
    return {**named, **{name: layer.window_block for name, layer in LAYERS.items() if layer.window_block}}


BLOCKS = block_names()


class UnknownField(InputError, AttributeError):
    """A message has no field of that name."""


class WrongValue(InputError, TypeError):
    """A field does not take a value of that kind."""


def set_field(layer: Message, name: str, value: Any) -> None:
    """Set a keyword of L.Type(...): a field of the type's block, or else of the layer (LayerParameter)."""
    block, written = BLOCKS.get(layer.type), f"L.{layer.type}"
    fields = LAYER_FIELDS[block].message_type.fields_by_name if block else {}
    if not name.endswith("param") and name in fields:
        assign(getattr(layer, block or ""), name, value, written)
    elif name in LAYER_FIELDS:
        assign(layer, name, value, written)
    else:
        raise UnknownField(_unknown(layer, name, written))


def assign(message: Message, name: str, value: Any, written: str) -> None:
    """Set the field `name` of `message`; InputError, which calls the message `written`, if it cannot be."""
    field = message.DESCRIPTOR.fields_by_name.get(name)
    if field is None:
        fields = message.DESCRIPTOR.fields_by_name
        hint = did_you_mean(name, fields) or f"it has {', '.join(sorted(fields))}"
        reason = refusal(owner_name(message.DESCRIPTOR), name)
        raise UnknownField(f"{written} has no field '{name}'{f': {reason}' if reason else f'; {hint}'}")
    inside = f"{written}({name}=..)" if written.startswith("L.") and "(" not in written else f"{written}.{name}"
    try:
        if not field.is_repeated:
            _assign_one(message, field, value, inside)
        else:
            for each in _elements(value):
                _append(getattr(message, name), field, each, inside)
    except InputError:
        raise
    except (TypeError, ValueError, OverflowError):
        text = printable(repr(value))
        short = text if len(text) <= MAX_QUOTED else f"{text[: MAX_QUOTED - 3]}..."
        takes = "a dict" if field.message_type is not None else KINDS.get(field.type) or expected_value(field)
        lists = ", or a list of these" if field.is_repeated else ""
        raise WrongValue(f"{written} has {name}={short}; it takes {takes}{lists}") from None


def _elements(value: Any) -> Iterable[Any]:
    if isinstance(value, np.ndarray):
        return list(value.flat)
    return value if isinstance(value, list | tuple) else [value]


def _assign_one(message: Message, field: Message, value: Any, written: str) -> None:
    if field.message_type is not None:
        inner = getattr(message, field.name)
        inner.SetInParent()
        _fill(inner, value, written)
    else:
        setattr(message, field.name, _plain(field, value))


def _append(values: Message, field: Message, value: Any, written: str) -> None:
    if field.message_type is not None:
        _fill(values.add(), value, written)
    else:
        values.append(_plain(field, value))


def _fill(message: Message, value: Any, written: str) -> None:
    if isinstance(value, type(message)):
        message.CopyFrom(value)
    elif isinstance(value, Mapping):
        for name, each in value.items():
            assign(message, str(name), each, written)
    else:
        raise TypeError


def _plain(field: Message, value: Any) -> Any:
    """A plain Python value for a field that is no message: converts NumPy scalars, and names of enums to numbers."""
    if isinstance(value, np.generic):
        value = value.item()
    if field.enum_type is not None and isinstance(value, str):
        named = field.enum_type.values_by_name.get(value)
        if named is None:
            raise ValueError
        return named.number
    return value


def _unknown(layer: Message, name: str, written: str) -> str:
    """The error text for a keyword that is a field of neither the layer nor its block."""
    block = BLOCKS.get(layer.type)
    own = LAYER_FIELDS[block].message_type if block else None
    fields = list(own.fields_by_name) if own is not None else []
    what = f"{written} has no field '{name}'"
    for owner in [own.name] if own is not None else []:
        if reason := refusal(owner, name):
            return f"{what}: {reason}"
    if hint := did_you_mean(name, [*fields, *(each for each in LAYER_FIELDS if each not in OF_CALLS)]):
        return f"{what}; {hint}"
    others = [each for each in LAYER_FIELDS.values() if each.message_type and name in each.message_type.fields_by_name]
    if others and own is None:
        blocks = " or ".join(f"{each.name}=dict({name}=..)" for each in others[:3])
        return f"{what}; write {blocks}" + (", or in another block" if len(others) > 3 else "")
    shown = ", ".join(sorted(fields)) if fields else ", ".join(sorted({*LAYER_FIELDS} - {*OF_CALLS, *BLOCKS.values()}))
    return f"{what}; it has {shown}"
