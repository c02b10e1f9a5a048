"""Layouts of kernel argument structs, read from their declarations in the CUDA sources.

Each kernel takes one plain struct, declared in its source and nowhere else; one that is a template of the element type
of blobs has pointers to these, whose layout is the same for every type.  `layout(module, struct)` parses that
declaration, so what the host packs and what the kernel reads cannot drift apart.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, Union

from layermem.backends.cuda.kernel_images.sources import closure
from layermem.backends.registry import StepContext

SCALARS = {"float": "f", "double": "d", "int": "i", "unsigned": "I", "unsigned long long": "Q"}
POINTER = "P"


ContextValue = Callable[[StepContext], float]


class Later:
    """A value of the step's context that no iteration changes: it is computed before the first launch."""

    def __init__(self, value: ContextValue):
        self.value = value


StructValue = Union[float, Later, Sequence[float], "StructValues"]
StructValues = Mapping[str, StructValue]  # by member; nested structs are mappings too


class Patch(NamedTuple):
    """Bytes of a packed struct that are written before the first launch."""

    offset: int
    kind: str
    value: ContextValue

    def write(self, data: bytearray, context: StepContext) -> None:
        struct.pack_into(self.kind, data, self.offset, self.value(context))


@dataclass(frozen=True)
class Member:
    name: str
    offset: int
    kind: str | Layout  # a format character of `struct`, or what is nested
    count: int | None  # of an array


@dataclass(frozen=True)
class Layout:
    """A C struct of numbers, pointers, arrays of them and other such structs."""

    name: str
    members: tuple[Member, ...]
    nbytes: int
    align: int

    def pack(self, values: StructValues) -> tuple[bytes, tuple[Patch, ...]]:
        """The struct's bytes, gaps zero, and what is patched later; `values` must name every member and no other."""
        data = bytearray(self.nbytes)
        patches: list[Patch] = []
        self._write(values, 0, data, patches)
        return bytes(data), tuple(patches)

    def _write(self, values: StructValues, base: int, data: bytearray, patches: list[Patch]) -> None:
        members = {member.name for member in self.members}
        if values.keys() != members:
            raise TypeError(
                f"{self.name}: missing {sorted(members - set(values))}, unknown {sorted(set(values) - members)}"
            )
        for member in self.members:
            value, offset = values[member.name], base + member.offset
            if isinstance(member.kind, Layout):
                assert isinstance(value, Mapping)
                member.kind._write(value, offset, data, patches)
            elif isinstance(value, Later):
                patches.append(Patch(offset, member.kind, value.value))
            elif member.count is not None:
                assert isinstance(value, Sequence)
                if len(value) > member.count:
                    raise ValueError(f"{self.name}.{member.name} holds {member.count} values, not {len(value)}")
                struct.pack_into(f"{len(value)}{member.kind}", data, offset, *value)
            else:
                struct.pack_into(member.kind, data, offset, value)


def layout(module: str, name: str) -> Layout:
    """The struct `name` as cuda/<module>.cu, or a header of it, declares it."""
    return _layouts(module)[name]


@cache
def _layouts(module: str) -> dict[str, Layout]:
    known: dict[str, Layout] = {}
    for path in closure(module):
        text = re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))
        for constant, value in re.findall(r"^constexpr int (\w+) = (\d+);", text, re.MULTILINE):
            text = text.replace(f"[{constant}]", f"[{value}]")
        for name, body in re.findall(r"^struct (\w+) \{\n(.*?)^\};", text, re.MULTILINE | re.DOTALL):
            declared = _layout(name, body, known)
            if declared is not None:
                known[name] = declared
    return known


DECLARATION = re.compile(r"(?:const )?(unsigned long long|unsigned char|unsigned short|\w+)\s*(\*?)\s*(.+)", re.DOTALL)


def _layout(name: str, body: str, known: Mapping[str, Layout]) -> Layout | None:
    """None for a struct with members that are not plain: no kernel takes it."""
    members: list[Member] = []
    end, widest = 0, 1
    for declaration in filter(None, (d.strip() for d in re.sub(r"<[\w, ]+>", "", body).split(";"))):
        match = DECLARATION.fullmatch(declaration)
        kind = match and (POINTER if match[2] else SCALARS.get(match[1]) or known.get(match[1]))
        if not match or not kind:
            return None
        size, align = (kind.nbytes, kind.align) if isinstance(kind, Layout) else (struct.calcsize(kind),) * 2
        for one in match[3].split(","):
            array = re.fullmatch(r"\*?(\w+)(?:\[(\d+)\])?", one.strip())
            if array is None:
                return None
            offset = -(-end // align) * align
            count = int(array[2]) if array[2] else None
            members.append(Member(array[1], offset, kind, count))
            end, widest = offset + size * (count or 1), max(widest, align)
    return Layout(name, tuple(members), -(-end // widest) * widest, widest)
