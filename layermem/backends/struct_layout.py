"""Layouts of kernel arguments, read from their declarations in C++ and CUDA sources, and the packing of values.

A CUDA kernel takes one plain struct; a kernel of the cpu backend takes its parameters, packed as members of a struct.
Both are declared only in the sources, so that host and kernel always agree on the layout.

Members with an initializer, flags, std::optional, and pointers that are declared as OrNull may be left out; they are
then zero.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, Union

from layermem.backends.registry import StepContext

ContextValue = Callable[[StepContext], float]


class Later:
    """A value of the step's context that no iteration changes; it is computed before the first launch."""

    def __init__(self, value: ContextValue):
        self.value = value


StructValue = Union[float, str, Later, None, Sequence["StructValue"], "StructValues"]  # None: left out
StructValues = Mapping[str, StructValue]  # by member; nested structs are mappings, or members in order


class Patch(NamedTuple):
    """Bytes of a packed struct that are written before the first launch."""

    offset: int
    kind: str
    value: ContextValue

    def write(self, data: bytearray, context: StepContext) -> None:
        struct.pack_into(self.kind, data, self.offset, self.value(context))


class Packing(NamedTuple):
    """A struct that is being packed: its bytes, followed by those of vectors, and patches to apply later."""

    data: bytearray
    patches: list[Patch]


class MemberKind(Protocol):
    """The type of a member.  Error texts begin after the name of the member, which StructLayout adds."""

    @property
    def nbytes(self) -> int: ...

    @property
    def align(self) -> int: ...

    def write(self, value: StructValue, offset: int, packing: Packing) -> None: ...


class Scalar:
    """A number, a flag or an address: `code` is its format character of the module `struct`."""

    def __init__(self, code: str, name: str):
        self.code, self.name = code, name
        self.nbytes = self.align = struct.calcsize(code)

    def write(self, value: StructValue, offset: int, packing: Packing) -> None:
        if isinstance(value, Later):
            packing.patches.append(Patch(offset, self.code, value.value))
            return
        try:
            struct.pack_into(self.code, packing.data, offset, value)
        except (struct.error, OverflowError):
            raise TypeError(f" must be {self.name}, but is {value!r}") from None


class Array:
    """An array with a fixed number of elements; trailing ones may be left out."""

    def __init__(self, element: MemberKind, count: int):
        self.element, self.count = element, count
        self.nbytes, self.align = count * element.nbytes, element.align

    def write(self, value: StructValue, offset: int, packing: Packing) -> None:
        values = _elements(value)
        if len(values) > self.count:
            raise ValueError(f" holds {self.count} values, not {len(values)}")
        _write_each(self.element, values, offset, packing)


class Vector:
    """A std::vector or std::string: an offset into the same bytes, and the number of elements there."""

    nbytes, align = 16, 8

    def __init__(self, element: MemberKind):
        self.element = element

    def write(self, value: StructValue, offset: int, packing: Packing) -> None:
        if isinstance(value, str) and self.element is SCALARS["char"]:
            value = value.encode()
        values = _elements(value)
        packing.data.extend(bytes(-len(packing.data) % 8))
        begin = len(packing.data)
        struct.pack_into("2q", packing.data, offset, begin, len(values))
        packing.data.extend(bytes(len(values) * self.element.nbytes))
        _write_each(self.element, values, begin, packing)


class Optional:
    """A std::optional integer: a flag for its presence, and its value."""

    nbytes, align = 16, 8

    def write(self, value: StructValue, offset: int, packing: Packing) -> None:
        SCALARS["int64_t"].write(value, offset + 8, packing)
        packing.data[offset] = 1


class Enumeration:
    """An enumeration, whose values are given by name or as numbers; an empty name means the first value."""

    def __init__(self, name: str, number: Scalar, values: Mapping[str, int]):
        self.name, self.number, self.values = name, number, values
        self.nbytes, self.align = number.nbytes, number.align

    def write(self, value: StructValue, offset: int, packing: Packing) -> None:
        if isinstance(value, str):
            value = value or next(iter(self.values))
            if value not in self.values:
                raise ValueError(f": unknown {self.name} '{value}', known are {', '.join(self.values)}")
            value = self.values[value]
        elif value not in self.values.values():
            raise ValueError(f": unknown {self.name} {value}")
        self.number.write(value, offset, packing)


class Member(NamedTuple):
    name: str
    offset: int
    kind: MemberKind
    optional: bool


@dataclass(frozen=True)
class StructLayout:
    """A C struct, or the parameters of a function as one.

    The members of a nested struct may also be given by their own names, next to the others.
    """

    name: str
    members: tuple[Member, ...]
    nbytes: int
    align: int

    def pack(self, values: StructValues) -> tuple[bytes, tuple[Patch, ...]]:
        """Return the struct's bytes, with gaps zero, and later patches; `values` must name every required member, and
        nothing but members."""
        packing = Packing(bytearray(self.nbytes), [])
        try:
            self.write(values, 0, packing)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{self.name}{error}") from None
        return bytes(packing.data), tuple(packing.patches)

    @cached_property
    def plain(self) -> struct.Struct | None:
        """A format that packs all members at once, if they are only numbers, flags and addresses."""
        codes = [member.kind.code for member in self.members if isinstance(member.kind, Scalar)]
        return struct.Struct("@" + "".join(codes)) if len(codes) == len(self.members) else None

    def write(self, value: StructValue, offset: int, packing: Packing) -> None:
        if not isinstance(value, Mapping):
            values = _elements(value)
            if len(values) > len(self.members):
                raise TypeError(f" has {len(self.members)} members, not {len(values)}")
            value = {member.name: one for member, one in zip(self.members, values)}
        if self.plain and len(value) == len(self.members):
            with suppress(struct.error, OverflowError, KeyError):
                self.plain.pack_into(packing.data, offset, *[value[member.name] for member in self.members])
                return
        if not self.names.issuperset(value):
            raise TypeError(f": unknown {sorted(value.keys() - self.names)}, missing {self._missing(value)}")
        for member in self.members:
            one = self._given(member, value)
            if one is not None:
                try:
                    member.kind.write(one, offset + member.offset, packing)
                except (TypeError, ValueError) as error:
                    raise type(error)(f".{member.name}{error}") from None
            elif not member.optional:
                raise TypeError(f": missing {self._missing(value)}")

    def _missing(self, values: StructValues) -> list[str]:
        return [each.name for each in self.members if self._given(each, values) is None and not each.optional]

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of all members, including those of nested structs."""
        inner = (member.kind.names for member in self.members if isinstance(member.kind, StructLayout))
        return frozenset(member.name for member in self.members).union(*inner)

    def _given(self, member: Member, values: StructValues) -> StructValue | None:
        """The value of `member`, or the values of its members; None if it is absent."""
        if member.name in values or not isinstance(member.kind, StructLayout):
            return values.get(member.name)
        return {name: values[name] for name in member.kind.names if name in values} or None


def _elements(value: StructValue) -> Sequence[StructValue]:
    if isinstance(value, (str, Mapping)) or not hasattr(value, "__len__") or not hasattr(value, "__getitem__"):
        raise TypeError(f" must be a sequence, but is {value!r}")
    return value  # type: ignore[return-value]  # or an array


def _write_each(kind: MemberKind, values: Sequence[StructValue], offset: int, packing: Packing) -> None:
    if isinstance(kind, Scalar):
        with suppress(struct.error, OverflowError):
            struct.pack_into(f"{len(values)}{kind.code}", packing.data, offset, *values)
            return
    for i, value in enumerate(values):
        try:
            kind.write(value, offset + i * kind.nbytes, packing)
        except (TypeError, ValueError) as error:
            raise type(error)(f"[{i}]{error}") from None


# -- declarations ------------------------------------------------------------------------------------------------------

INTEGERS = {
    "int": "i",
    "unsigned": "I",
    "unsigned long long": "Q",
    "int64_t": "q",
    "uint64_t": "Q",
    "uint32_t": "I",
    "char": "b",
}
SCALARS = {name: Scalar(code, "an integer") for name, code in INTEGERS.items()}
SCALARS |= {"float": Scalar("f", "a number"), "double": Scalar("d", "a number"), "bool": Scalar("?", "a flag")}
POINTER = Scalar("Q", "an address")

ENUMERATION = re.compile(r"^enum class (\w+)(?: : (\w+))? \{([^}]*)\};", re.MULTILINE)
STRUCT = re.compile(r"^struct (\w+) \{ *\n(.*?)^\};", re.MULTILINE | re.DOTALL)
FUNCTION = re.compile(r"^(?:\w*Launch|int64_t|bool) (\w+)\(([^;()]*)\);", re.MULTILINE)
DECLARATION = re.compile(
    r"(?:const )?(unsigned(?: long long| char| short)?\b|[\w:]+(?:<.*>)?)(?: const)?([\s*&]+.+)", re.DOTALL
)
DECLARATOR = re.compile(r"([\s*&]*)(\w+)(?:\[(\d+)\])?( = (?:0|false|nullptr|\{\}|\w+::\w+))?")


class Declarations:
    """The structs and functions declared in some sources."""

    def __init__(self, texts: Iterable[str]):
        text = re.sub(r"//[^\n]*", "", "\n".join(texts))
        for constant, value in re.findall(r"^constexpr int (\w+) = (\d+);", text, re.MULTILINE):
            text = text.replace(f"[{constant}]", f"[{value}]")
        self._structs = dict(STRUCT.findall(text))
        self._functions = dict(FUNCTION.findall(text))
        self._known: dict[str, MemberKind] = {
            **SCALARS,
            "std::string": Vector(SCALARS["char"]),
            "std::optional": Optional(),
        }
        for name, base, body in ENUMERATION.findall(text):
            self._known[name] = Enumeration(name, SCALARS[base or "int"], _enumerators(body))

    def struct(self, name: str) -> StructLayout:
        layout = self._kind(name)
        if not isinstance(layout, StructLayout):
            raise KeyError(name)
        return layout

    def structs(self) -> Iterator[StructLayout]:
        """Yield the structs whose members kernels may take."""
        for name in self._structs:
            with suppress(KeyError):
                yield self.struct(name)

    def parameters(self, function: str) -> StructLayout:
        """The parameters as a struct with an alignment of 8."""
        members = self._members(function, self._functions[function].split(","))
        return StructLayout(function, tuple(members), -(-_extent(members)[0] // 8) * 8, 8)

    def _kind(self, type_name: str) -> MemberKind:
        """The kind of a type that is no pointer; KeyError for one that no kernel takes."""
        if type_name.startswith("std::vector<"):
            element = type_name.removeprefix("std::vector<")[:-1]
            return Vector(POINTER if element.endswith("*") else self._kind(element))
        name = type_name.partition("<")[0]
        if name not in self._known:
            body = re.sub(r"^.*\(.*$", "", self._structs[name], flags=re.MULTILINE)  # without functions
            members = tuple(self._members(name, filter(str.strip, body.split(";"))))
            self._known[name] = StructLayout(name, members, *_extent(members))
        return self._known[name]

    def _members(self, name: str, declarations: Iterable[str]) -> list[Member]:
        members: list[Member] = []
        for declaration in map(str.strip, declarations):
            match = DECLARATION.fullmatch(declaration)
            for text in match[2].split(",") if match else [""]:
                declarator = DECLARATOR.fullmatch(text)
                if not match or not declarator:
                    raise KeyError(f"{name}: {declaration}")
                members.append(self._member(match, declarator, _extent(members, padded=False)[0]))
        return members

    def _member(self, declaration: re.Match[str], declarator: re.Match[str], end: int) -> Member:
        """The next member, after members that end at byte `end`."""
        type_name, (mark, name, count, initializer) = declaration[1], declarator.groups()
        or_null = type_name.startswith("OrNull<")
        kind = POINTER if or_null or "*" in mark else self._kind(type_name)
        if count:
            kind = Array(kind, int(count))
        if isinstance(kind, Enumeration) and initializer:
            assert initializer.endswith(f"::{next(iter(kind.values))}"), f"{name} must begin as zero"
        optional = or_null or bool(initializer) or kind is SCALARS["bool"] or isinstance(kind, Optional)
        optional = optional or (isinstance(kind, StructLayout) and all(member.optional for member in kind.members))
        return Member(name, -(-end // kind.align) * kind.align, kind, optional)


def _enumerators(body: str) -> dict[str, int]:
    """The values of enumerators: one more than the previous value if none is given."""
    values: dict[str, int] = {}
    for text in filter(None, map(str.strip, body.split(","))):
        name, _, value = text.partition(" = ")
        values[name] = int(value) if value else max(values.values(), default=-1) + 1
    return values


def _extent(members: Sequence[Member], padded: bool = True) -> tuple[int, int]:
    """Bytes and alignment of a struct."""
    align = max((member.kind.align for member in members), default=1)
    end = max((member.offset + member.kind.nbytes for member in members), default=0)
    return -(-end // align) * align if padded else end, align
