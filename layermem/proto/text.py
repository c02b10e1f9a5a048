"""Prototxt to message: bytes, characters, fields, and a sentence for whatever is wrong with them.

The parsing is the protobuf package's.  Its errors say where; here they get words that a person who wrote a net
would use, and a remedy.
"""

from __future__ import annotations

import os
import re
from os import PathLike
from typing import Any

from google.protobuf import text_format

from layermem.errors import InputError
from layermem.proto.outline import Outline, outline, tokens
from layermem.proto.remedy import expected_value, field_at, unknown_field
from layermem.units import format_bytes

TEXT_LIMIT = 64 * 2**20  # bytes; a net of 2504 layers takes 1 MiB

_SAID_OF_LINE = re.compile(r"^\d+:\d+ : (?:'.*?': )?(?=[A-Z])", re.DOTALL)
_UNKNOWN = re.compile(r'Message type "caffe\.([\w.]+)" has no field named "(.*)"')
_TWICE = re.compile(r'Message type "caffe\.([\w.]+)" should not have multiple "(.*)" fields')


def read_bytes(path: str | PathLike[str], *, what: str, limit: int) -> bytes:
    """The content of a file that the user named as a `what`, at most `limit` bytes of it."""
    try:
        with open(path, "rb") as handle:
            size = os.fstat(handle.fileno()).st_size  # 0 for a pipe, which may still have no end
            raw = handle.read(limit + 1) if size <= limit else b""
    except FileNotFoundError:
        raise InputError(f"no such file; name an existing {what}", path=str(path)) from None
    except IsADirectoryError:
        raise InputError(f"is a folder; name the {what} inside it", path=str(path)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot be read as a {what}: {reason}", path=str(path)) from None
    if max(size, len(raw)) > limit:
        raise InputError(f"is larger than {format_bytes(limit)}, too large for a {what}", path=str(path))
    return raw


def decode(raw: bytes, path: str, *, what: str) -> str:
    """The characters of a prototxt.  Comments may be in any encoding, as they may for Caffe; the rest is UTF-8."""
    if not raw.strip():
        raise InputError(f"is empty; a {what} is text", path=path)
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError("is UTF-16 text; save it as UTF-8", path=path)
    if b"\0" in raw:
        raise InputError(f"is binary; a {what} is text (weights, .caffemodel, go to --weights)", path=path)
    text = raw.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    if text.isascii():
        return text
    comments = {}
    for token in tokens(text):
        if any("\udc80" <= c <= "\udcff" for c in token.text):
            if token.kind != "comment":
                hint = f"has bytes that are not UTF-8 (column {token.column}); a {what} is UTF-8 text"
                raise InputError(hint, path=path, line=token.line)
            comments[token.line] = token.column - 1
    lines = text.split("\n")
    for line, column in comments.items():
        lines[line - 1] = lines[line - 1][:column]
    return "\n".join(lines)


def parse(text: str, message: Any, path: str) -> Outline:
    """Fill `message` from `text`; the outline tells the line of each of its fields."""
    layout = outline(text)
    try:
        text_format.Parse(text, message)
    except text_format.ParseError as error:
        raise InputError(_sentence(error, text, message, layout), path=path, line=_line(error, layout)) from None
    except RecursionError:
        raise InputError("has blocks within blocks beyond any net's depth; check its brackets", path=path) from None
    for missing in message.FindInitializationErrors():
        raise _missing(missing, layout, path)
    return layout


def _unclosed(error: text_format.ParseError, layout: Outline) -> tuple[str, int] | None:
    """The innermost block that is still open where the text ends, if that is what the parser stumbled over."""
    return layout.unclosed[-1] if layout.unclosed and 'Expected "' in str(error) else None


def _line(error: text_format.ParseError, layout: Outline) -> int | None:
    unclosed = _unclosed(error, layout)
    return unclosed[1] if unclosed else error.GetLine()


def _sentence(error: text_format.ParseError, text: str, message: Any, layout: Outline) -> str:
    """What is wrong, and what would be right, without the place in front."""
    said = _SAID_OF_LINE.sub("", str(error)).rstrip(".")
    line, column = error.GetLine() or 1, error.GetColumn() or 1
    unclosed = _unclosed(error, layout)
    if unclosed:
        return f"the block '{unclosed[0]}' that opens here is never closed; add its '}}'"
    if match := _UNKNOWN.search(said):
        return unknown_field(match[1], match[2], column, message)
    if match := _TWICE.search(said):
        return f"'{match[2]}' is given a second time in this {match[1]} (column {column}); keep one"
    if said.startswith("String missing ending quote"):
        return f"the string at column {column} is not closed on its line; add the quote"
    if said.startswith("Couldn't parse string"):
        return f"the string before column {column} is not UTF-8 once its escapes are read; write its characters"
    if said.endswith("got }"):
        return f"the '}}' at column {column} closes nothing; remove it, or open the block it belongs to"
    given = layout.at(line, column)
    field = field_at(message.DESCRIPTOR, given.path) if given else None
    if given and field is not None:
        value = _value_at(text, line, column)
        return f"{value} is no value for '{given.path[-1]}' (column {column}); it takes {expected_value(field)}"
    return f"{said} (column {column}); a field is written 'name: value' or 'name {{ ... }}'"


def _value_at(text: str, line: int, column: int) -> str:
    value = next((t.text for t in tokens(text.split("\n")[line - 1][column - 1 :])), "nothing")
    return value if value[0] in "\"'" else f"'{value}'"


def _missing(what: str, layout: Outline, path: str) -> InputError:
    """`what` is the package's name of a required field that is not set: 'layer[3].clip_param.max'."""
    block, _, name = what.rpartition(".")
    repeated = re.match(r"(\w+)\[(\d+)\]", what)
    lines = layout.lines(repeated[1]) if repeated else []
    line = lines[int(repeated[2])] if repeated and int(repeated[2]) < len(lines) else None
    return InputError(
        f"'{block.rpartition('.')[2]}' lacks '{name}', which has no default; add it", path=path, line=line
    )
