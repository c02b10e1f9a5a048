"""Turns parse errors of the protobuf package into messages with a line and a remedy.

The parser reports the position and the violated rule; the outline of the text gives the field and its block.
"""

from __future__ import annotations

import re

from google.protobuf import text_format

from layermem.errors import InputError
from layermem.proto.forks import fork_of_old_type, fork_of_value
from layermem.proto.outline import Field, Outline, Token, tokens
from layermem.proto.remedy import expected_value, field_at, unknown_field
from layermem.proto.schema import Message

_UNKNOWN = re.compile(r'Message type "caffe\.([\w.]+)" has no field named "(.*)"')
_TWICE = re.compile(r'Message type "caffe\.([\w.]+)" should not have multiple "(.*)" fields')
MAX_QUOTED = 60  # letters of the text that an error repeats
_VALUE_EXPECTED = (
    "Expected string",
    'Expected "true"',
    'Expected "{"',
    "Couldn't parse",
    "Value out of range",
    "Invalid octal",
    "Enum type",
)


def explain(error: text_format.ParseError, text: str, message: Message, layout: Outline, path: str) -> InputError:
    """Return the InputError for a parse error in `text`, which should hold a message of the type of `message`."""
    if layout.unclosed and str(error).endswith(('Expected "}".', 'Expected ">".')):
        name, line = layout.unclosed[-1]
        what = f"the block '{name}' that opens here is never closed; add its '}}'"
        return InputError(what, path=path, line=line)
    return InputError(_sentence(error, text, message, layout), path=path, line=error.GetLine())


def _sentence(error: text_format.ParseError, text: str, message: Message, layout: Outline) -> str:
    line, column = error.GetLine() or 1, error.GetColumn() or 1
    quoted_line = f"'{text.split(chr(10))[line - 1]}': "
    reason = str(error).removeprefix(f"{line}:{column} : ").removeprefix(quoted_line).removeprefix("'': ").rstrip(".")
    before, here = _tokens_at(text, line, column)
    if match := _UNKNOWN.search(reason):
        return unknown_field(match[1], match[2], column, message)
    if match := _TWICE.search(reason):
        again = f"'{match[2]}' is given a second time in this {match[1]} (column {column}); "
        owner = message.DESCRIPTOR.file.message_types_by_name.get(match[1])
        return again + (_one_for_axes(owner, match[2]) or "keep one")
    if here and here.text == "[" and (listed := _listed(text, here, layout)):
        field = field_at(message.DESCRIPTOR, listed.path)
        if field is not None and not field.is_repeated:
            what = f"'{field.name}' takes one value, and no list (column {column})"
            return f"{what}; {_one_for_axes(field.containing_type, field.name) or 'write one value'}"
    if here and here.text.startswith(("//", "/*")):
        return f"'{here.text[:2]}' begins no comment (column {column}); write '#' before each line of it"
    if reason.startswith("String missing ending quote"):
        return f"the string at column {column} is not closed on its line; add the quote"
    if reason.startswith("Couldn't parse string"):
        return f"the string before column {column} is not UTF-8 after its escapes are decoded; write plain characters"
    if "codec can't decode" in reason:
        return f"the string at column {column} has a '\\' that starts no known escape; write '\\\\' for a backslash"
    if reason == 'Expected "{"' and before and before.kind == "word":
        return f"'{before.text}' is a block, not a single value (column {column}); write '{before.text} {{ ... }}'"
    if reason.startswith(_VALUE_EXPECTED):
        return wrong_value(here, column, message, layout.at(line, column))
    if reason == 'Expected ":"' and before:
        return f"'{before.text}' has no ':' before its value (column {column}); write '{before.text}: ...'"
    if reason == 'Expected ","':
        return f"a ',' or the closing ']' of a list is missing before {_quoted(here)} (column {column})"
    if here and here.text == "}":
        return f"the '}}' at column {column} closes nothing; remove it, or open the block it belongs to"
    if reason.startswith("Expected identifier") or reason.endswith("does not have extensions"):
        return f"{_quoted(here)} is not the name of a field (column {column}); write 'name: value'"
    return f"{reason} (column {column}); a field is written 'name: value' or 'name {{ ... }}'"


def _one_for_axes(owner: Message, name: str) -> str:
    """The remedy for several values of a field that has one for both axes, and others for each; "" for other fields."""
    each = [f"{name.removesuffix('_size')}_{axis}" for axis in "hw"]
    if owner is None or not all(field in owner.fields_by_name for field in each):
        return ""
    return f"it has one value for both axes: write {each[0]} and {each[1]} for two (more axes are of forks of Caffe)"


def _listed(text: str, bracket: Token, layout: Outline) -> Field | None:
    """The field whose list begins at `bracket`; None if the list is empty."""
    behind = (each for each in tokens(text) if (each.line, each.column) > (bracket.line, bracket.column))
    first = next((each for each in behind if each.kind != "comment"), None)
    return layout.at(first.line, first.column) if first else None


def wrong_value(here: Token | None, column: int, message: Message, given: Message) -> str:
    """Return the error text for a value of the wrong kind; `given` is its field, None if the outline has no value
    there."""
    field = field_at(message.DESCRIPTOR, given.path) if given else None
    takes = f"; it takes {expected_value(field)}" if field is not None else ""
    if given is not None and given.path == ("layers", "type") and here and here.kind == "string":
        return f"type {_quoted(here)} (column {column}) is of a 'layer' block; rename all 'layers' to 'layer'"
    if given is not None and given.path == ("layers", "type") and here and (fork := fork_of_old_type(here.text)):
        return f"type {_quoted(here)} (column {column}) is from {fork}, and layermem does not have it"
    if given is not None and here and (known := fork_of_value(given.path[-1], here.text)):
        fork, remedy = known
        return f"{_quoted(here)} is a value for '{given.path[-1]}' of {fork} (column {column}); {remedy}"
    if given is None or here is None or (here.kind == "mark" and here.text not in "{<"):
        return (
            f"a value is missing before {_quoted(here)} (column {column}){takes or '; write it, or remove the field'}"
        )
    return f"{_quoted(here)} is not a value for '{given.path[-1]}' (column {column}){takes}"


def _tokens_at(text: str, line: int, column: int) -> tuple[Token | None, Token | None]:
    """Return the token before a position and the token at it; comments are skipped."""
    before = None
    for token in tokens(text):
        if token.kind == "comment":
            continue
        if (token.line, token.column) >= (line, column):
            return before, token
        before = token
    return before, None


def _quoted(token: Token | None) -> str:
    if token is None:
        return "the end of the text"
    text = token.text if len(token.text) <= MAX_QUOTED else f"{token.text[: MAX_QUOTED - 3]}..."
    return text if token.kind == "string" else f"'{text}'"
