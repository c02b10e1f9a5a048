"""Finds the line and column of every field of a prototxt, from the tokens of the text format.

    layer {            # line 3           fields of outline(text):
      name: "ip1"      # line 4             ("layer",)         line 3
    }                                       ("layer", "name")  line 4

The parser of the protobuf package does not keep lines, so this second parser finds them in the same text.  It accepts
broken text, so that an error can name a block that is never closed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import cached_property
from typing import NamedTuple

from layermem.errors import InputError

MAX_TOKENS = 3_500_000  # a net of 200,000 layers has three million
MAX_LINES = 4_000_000
MAX_DEPTH = 64  # Caffe's messages lie five deep
MAX_STRING = 2**20  # letters

_TOKEN = re.compile(
    r"""(?P<space>   \s+)
      | (?P<comment> \#[^\n]*)
      | (?P<string>  "[^"\\\n]*" | '[^'\\\n]*')
      | (?P<quote>   ["'])
      | (?P<mark>    [{}<>\[\]:;,])
      | (?P<word>    [^\s"'#{}<>\[\]:;,]+)""",
    re.VERBOSE,
)
# A word that begins as a number; the form of those that Caffe's parser takes, of which Python takes more (0_1, 0b11).
_NUMERIC = re.compile(r"[-+]*\.?\d")
_NUMBER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?[fF]?)")
_NETS = {("net_param",), ("train_net_param",), ("test_net_param",)}  # fields of SolverParameter
_LAYERS = {(*net, name) for net in ((), *_NETS) for name in ("layer", "layers")}
Place = tuple[tuple[str, int], ...]  # the names and indices of fields that lead to a block: (("layer", 3),)

# Ends the scan of a string with escapes or without an end.
_STOP = {quote: re.compile(rf"[{quote}\\\n]") for quote in "\"'"}


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
class Unread:
    """The fields of a layer that the schema lacks; unread.py set them aside."""

    error: InputError
    augments: bool = False  # it changes pixels, and no shape that the layer states
    type: str = ""  # the type of the layer, where it is what the schema does not have


@dataclass(frozen=True)
class Outline:
    fields: tuple[Field, ...]  # in the order of the text
    unclosed: tuple[tuple[str, int], ...]  # (name, line) of each block without an end, outermost first
    ignored: tuple[str, ...] = ()  # a sentence for each field of a fork that changes nothing
    unread: Mapping[Place, tuple[Unread, ...]] = dataclass_field(default_factory=dict)  # by layer (unread.py)
    no_number: Token | None = None  # the first value that begins as a number, and is none

    def lines(self, *path: str) -> list[int]:
        """The line of every field at `path`: lines("layer") has one entry per layer."""
        return self._lines.get(path, [])

    def unread_of(self, *net: tuple[str, int]) -> dict[int, tuple[Unread, ...]]:
        """The fields set aside for a place in the net, by index of the layer."""
        return {place[-1][1]: unread for place, unread in self.unread.items() if place[:-1] == net}

    def layers(self) -> list[tuple[Place, list[Field]]]:
        """The place of each layer of a net, or of the nets in a solver, and the fields in it."""
        layers: list[tuple[Place, list[Field]]] = []
        counts: dict[tuple[Place, str], int] = {}
        net: Place = ()
        for field in self.fields:
            path = field.path
            if path in _NETS or path in _LAYERS:
                outer = net[: len(path) - 1]
                index = counts.get((outer, path[-1]), 0)
                counts[outer, path[-1]] = index + 1
                place = (*outer, (path[-1], index))
                if path in _NETS:
                    net = place
                else:
                    layers.append((place, []))
            elif layers and path[: len(layers[-1][0])] in _LAYERS:
                layers[-1][1].append(field)
        return layers

    @cached_property
    def _lines(self) -> dict[tuple[str, ...], list[int]]:
        lines: dict[tuple[str, ...], list[int]] = {}
        for field in self.fields:
            lines.setdefault(field.path, []).append(field.line)
        return lines

    def at(self, line: int, column: int) -> Field | None:
        """The field whose value starts at a position."""
        return next((field for field in self.fields if field.value == (line, column)), None)


def tokens(text: str) -> Iterator[Token]:
    """Yield every token of `text`, including comments; InputError beyond the limits above, so that time and memory stay
    small and linear in the text, even if it is no prototxt."""
    if text.count("\n") > MAX_LINES:
        raise InputError(f"has more than {MAX_LINES:,} lines; give the right file, or split the net")
    line, start, left = 1, 0, MAX_TOKENS  # `start`: index of the first letter of the line
    matches = _TOKEN.finditer(text)
    while match := next(matches, None):
        kind, (begin, end) = match.lastgroup, match.span()
        if kind == "space":
            newlines = text.count("\n", begin, end)
            if newlines:
                line, start = line + newlines, text.rindex("\n", begin, end) + 1
            continue
        if kind == "quote":
            kind, end = "string", _string_end(text, end, text[begin])
            matches = _TOKEN.finditer(text, end)
        if kind == "string" and end - begin > MAX_STRING:
            what = f"has a string of more than {MAX_STRING:,} letters; is its closing quote missing?"
            raise InputError(what, line=line)
        left -= 1
        if left < 0:
            what = f"has more than {MAX_TOKENS:,} words and marks; give the right file, or split the net"
            raise InputError(what, line=line)
        yield Token(str(kind), text[begin:end], line, begin - start + 1)


def value_end(text: str, at: int) -> int:
    """The index after the value that begins at `at`, including a `,` or `;` after it."""
    depth, end, whole, of_strings = 0, at, False, False
    matches = _TOKEN.finditer(text, at)
    while match := next(matches, None):
        kind, (begin, stop) = match.lastgroup, match.span()
        if kind in ("space", "comment"):
            continue
        if kind == "quote":
            kind, stop = "string", _string_end(text, stop, text[begin])
            matches = _TOKEN.finditer(text, stop)
        if whole and not (of_strings and kind == "string"):
            return stop if match[0] in (",", ";") else end
        depth += (match[0] in ("{", "<", "[")) - (match[0] in ("}", ">", "]"))
        end, whole, of_strings = stop, depth <= 0, kind == "string"
    return end


def _string_end(text: str, at: int, quote: str) -> int:
    """The index after the string that is open at `at`: after its quote, or the end of its line, or MAX_STRING."""
    stop, limit = _STOP[quote], at + MAX_STRING
    while at <= limit and (match := stop.search(text, at)):
        at = match.end()
        if match[0] == quote:
            return at
        if match[0] == "\n" or text[at : at + 1] in ("", "\n"):
            return at - (match[0] == "\n")
        at += 1
    return at if at > limit else len(text)


def outline(text: str) -> Outline:
    """Return the fields of `text`, as far as its brackets allow; InputError beyond the limits above."""
    fields: list[Field] = []
    opened: list[tuple[str, int]] = []
    paths: list[dict[str, tuple[str, ...]]] = [{}]  # for each open block: the distinct paths of its fields
    name, line = "", 0  # the field whose value follows; line 0: use the line of the value
    awaits_value = in_list = False
    no_number = None
    for token in tokens(text):
        place = (token.line, token.column)
        if token.kind == "comment":
            continue
        if token.text in ("{", "<"):
            line = token.line if in_list else line or token.line
            fields.append(Field(_path(opened, paths, name), line, place))
            if len(opened) == MAX_DEPTH:
                raise InputError(f"opens more than {MAX_DEPTH} blocks inside each other; check its brackets", line=line)
            opened.append((name, line))
            paths.append({})
            name, line, awaits_value, in_list = "", 0, False, False
        elif token.text in ("}", ">"):
            name, line = opened.pop()[0] if opened else "", 0  # the next block of a list has no name
            del paths[len(opened) + 1 :]
            awaits_value = in_list = False
        elif token.text == ":":
            awaits_value = True
        elif token.text in ("[", ","):
            in_list = awaits_value = in_list or token.text == "["
        elif token.text in ("]", ";"):
            in_list = awaits_value = False
        elif awaits_value:
            fields.append(Field(_path(opened, paths, name), line or token.line, place))
            awaits_value = False
            if no_number is None and not is_value(token.text):
                no_number = token
        elif token.kind == "word":
            name, line = token.text, token.line
    return Outline(tuple(fields), tuple(opened), no_number=no_number)


def is_value(text: str) -> bool:
    """Whether a word may be a value: a name, a string, or a number as Caffe's parser takes it."""
    return not _NUMERIC.match(text) or bool(_NUMBER.fullmatch(text))


def _path(opened: list[tuple[str, int]], paths: list[dict[str, tuple[str, ...]]], name: str) -> tuple[str, ...]:
    """The path of a field of the innermost block; fields with the same name share it."""
    known = paths[-1].get(name)
    if known is None:
        known = paths[-1][name] = (*(block for block, _ in opened), name)
    return known
