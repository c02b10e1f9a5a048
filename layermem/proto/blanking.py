"""Finds fields in a text by its outline, and replaces them by blanks, so that lines and columns stay."""

from __future__ import annotations

import re
from functools import cached_property

from layermem.proto.outline import Field, Outline, value_end
from layermem.proto.schema import Message

_WORD = re.compile(r"[^\s;,{}<>\[\]#\"']*")


class FieldText:
    """The fields of `layout` in `text`, which should hold a message of the type `root` (a descriptor)."""

    def __init__(self, text: str, root: Message, layout: Outline):
        self.text, self.layout = text, layout
        self._owners: dict[tuple[str, ...], Message] = {(): root}

    def owner(self, path: tuple[str, ...]) -> Message:
        """The descriptor of the message at a path; None if the schema has no such message."""
        if path not in self._owners:
            outer = self.owner(path[:-1])
            field = None if outer is None else outer.fields_by_name.get(path[-1])
            self._owners[path] = None if field is None else field.message_type
        return self._owners[path]

    def offset(self, line: int, column: int) -> int:
        """The index of a position in the text."""
        return self._starts[line - 1] + column - 1

    def word(self, field: Field) -> str:
        """The value of a field if it is a number or a name, else the empty text."""
        match = _WORD.match(self.text, self.offset(*field.value))
        return match[0] if match else ""

    def has_unknown_name(self, field: Field) -> bool:
        """Whether the value of a field with named values is a name that it does not have."""
        owner, word = self.owner(field.path[:-1]), self.word(field)
        known = None if owner is None else owner.fields_by_name.get(field.path[-1])
        if known is None or known.enum_type is None or not word.isidentifier():
            return False
        return word not in known.enum_type.values_by_name

    def span(self, field: Field) -> tuple[int, int]:
        """The begin and end of a field, with the separator after it."""
        at = self.offset(*field.value)
        begin = self.text.rfind(field.path[-1], self.offset(field.line, 1), at)
        opening = self.text.find("[", begin, at)
        return begin, value_end(self.text, at if opening < 0 else opening)

    def blanked(self, spans: list[tuple[int, int]]) -> str:
        """The text with blanks for all letters of the spans, which are in order, except ends of lines."""
        parts, done = [], 0
        for begin, end in spans:
            parts += [self.text[done:begin], re.sub(r"[^\n]", " ", self.text[begin:end])]
            done = end
        return "".join((*parts, self.text[done:]))

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer("\n", self.text))]
