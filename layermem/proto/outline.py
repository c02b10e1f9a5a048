"""The line and column of every field of a prototxt: the tokens of the text format, without their meaning.

    layer {            # line 3           fields of outline(text):
      name: "ip1"      # line 4             ("layer",)         line 3
    }                                       ("layer", "name")  line 4

The parser of the protobuf package does not keep lines.  This second pass reads the same text for them, and it accepts
broken text, so that an error can name a block that is never closed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<newline> \n)
      | (?P<space>   [^\S\n]+)
      | (?P<comment> \#[^\n]*)
      | (?P<string>  "(?:[^"\\\n]|\\.)*"? | '(?:[^'\\\n]|\\.)*'?)
      | (?P<mark>    [{}<>\[\]:;,])
      | (?P<word>    [^\s"'#{}<>\[\]:;,]+)""",
    re.VERBOSE,
)


class Token(NamedTuple):
    kind: str  # comment, string, mark or word
    text: str
    line: int  # line and column count from 1
    column: int


class Field(NamedTuple):
    """A field in the text: the line of its name, and the (line, column) of its value or opening brace."""

    path: tuple[str, ...]
    line: int
    value: tuple[int, int]


@dataclass(frozen=True)
class Outline:
    fields: tuple[Field, ...]  # in the order of the text
    unclosed: tuple[tuple[str, int], ...]  # (name, line) of each block without an end, outermost first

    def lines(self, *path: str) -> list[int]:
        """The line of every field at `path`: lines("layer") has one entry for each layer."""
        return [field.line for field in self.fields if field.path == path]

    def at(self, line: int, column: int) -> Field | None:
        """The field whose value starts at a position."""
        return next((field for field in self.fields if field.value == (line, column)), None)


def tokens(text: str) -> Iterator[Token]:
    """Every token of `text`, comments included."""
    line, start = 1, 0
    for match in _TOKEN.finditer(text):
        if match.lastgroup == "newline":
            line, start = line + 1, match.end()
        elif match.lastgroup != "space":
            yield Token(str(match.lastgroup), match.group(), line, match.start() - start + 1)


def outline(text: str) -> Outline:
    """The fields of `text`, as far as its brackets allow; never fails."""
    fields: list[Field] = []
    opened: list[tuple[str, int]] = []
    name, line = "", 0  # of the field whose value follows; line 0: no name of its own, use the line of the value
    awaits_value = in_list = False
    for token in tokens(text):
        place = (token.line, token.column)
        if token.kind == "comment":
            continue
        if token.text in ("{", "<"):
            line = token.line if in_list else line or token.line
            fields.append(Field((*(n for n, _ in opened), name), line, place))
            opened.append((name, line))
            name, line, awaits_value, in_list = "", 0, False, False
        elif token.text in ("}", ">"):
            name, line = opened.pop()[0] if opened else "", 0  # the next block of a list repeats no name
            awaits_value = in_list = False
        elif token.text == ":":
            awaits_value = True
        elif token.text in ("[", ","):
            in_list = awaits_value = in_list or token.text == "["
        elif token.text in ("]", ";"):
            in_list = awaits_value = False
        elif awaits_value:
            fields.append(Field((*(n for n, _ in opened), name), line or token.line, place))
            awaits_value = False
        elif token.kind == "word":
            name, line = token.text, token.line
    return Outline(tuple(fields), tuple(opened))
