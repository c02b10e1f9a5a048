"""Remedies for unknown fields, and for values of the wrong kind."""

from __future__ import annotations

from collections.abc import Sequence

from layermem.proto.forks import owner_name, refusal
from layermem.proto.schema import Message, NetParameter, SolverParameter
from layermem.utils.similar import did_you_mean


def field_at(descriptor: Message, path: Sequence[str]) -> Message | None:
    """The field descriptor that `path` leads to from a message, or None if it leads nowhere."""
    field = None
    for name in path:
        if descriptor is None or name not in descriptor.fields_by_name:
            return None
        field = descriptor.fields_by_name[name]
        descriptor = field.message_type
    return field


def expected_value(field: Message) -> str:
    """Describe the values that a field accepts."""
    if field.message_type is not None:
        return "a block { ... }"
    if field.enum_type is not None:
        return "one of " + ", ".join(value.name for value in field.enum_type.values)
    ranges = {
        field.TYPE_INT32: "a whole number from -2147483648 to 2147483647",
        field.TYPE_UINT32: "a whole number from 0 to 4294967295",
        field.TYPE_INT64: "a whole number of 64 bits",
        field.TYPE_BOOL: "true or false",
        field.TYPE_STRING: "a UTF-8 string in quotes",
        field.TYPE_BYTES: "a string in quotes",
    }
    return ranges.get(field.type, "a number")


def unknown_field(owner: str, name: str, column: int, root: Message) -> str:
    """Return the error text for an unknown field `name` of message `owner`, in a text that should hold a `root`."""
    descriptor = root.DESCRIPTOR.file.message_types_by_name.get(owner)
    what = f"'{name}' (column {column}) is not a field of {owner_name(descriptor) if descriptor else owner}"
    if owner == "NetParameter" and name in SolverParameter.DESCRIPTOR.fields_by_name:
        return f"{what} but of a solver; give this file to --solver"
    if owner == "SolverParameter" and name in NetParameter.DESCRIPTOR.fields_by_name:
        return f"{what} but of a net; give this file to --net, or name it in the solver's 'net'"
    if descriptor is None:
        return what
    if reason := refusal(owner_name(descriptor), name):
        return f"{what}: {reason}"
    if hint := did_you_mean(name, descriptor.fields_by_name):
        return f"{what}; {hint}"
    if name in root.DESCRIPTOR.fields_by_name:
        return f"{what}; is a '}}' missing before it?"
    if inside := _children_with(descriptor, name):
        return f"{what}; it belongs inside {_either(inside)}"
    return f"{what}; its fields are {', '.join(sorted(descriptor.fields_by_name))}"


def _children_with(descriptor: Message, name: str) -> list[str]:
    """The names of the blocks of a message that have a field `name`."""
    blocks = [field for field in descriptor.fields if field.message_type is not None]
    return [field.name for field in blocks if name in field.message_type.fields_by_name]


def _either(names: list[str]) -> str:
    few = [f"'{name}'" for name in names[:3]]
    return " or ".join(few) + (" or another block" if len(names) > 3 else "")
