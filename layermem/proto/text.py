"""Turns prototxt files into messages: bytes, then characters, then fields, with an error message for each step; and
messages into the text that Caffe's programs print.

The protobuf package does the parsing; explain.py rewrites its errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from google.protobuf import text_format

from layermem.errors import InputError
from layermem.proto.explain import explain, wrong_value
from layermem.proto.forks import without_fork_fields
from layermem.proto.outline import Outline, Place, Token, Unread, outline, tokens
from layermem.proto.schema import Message
from layermem.proto.unread import set_aside
from layermem.utils.input_files import with_newlines

_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = "abfnrtv\\'\"?01234567xXuU"  # escapes of C, as in Caffe's parser

_BACKSLASHES = re.compile(r"\\+")
_UNDECODABLE = re.compile("[\udc80-\udcff]")  # a byte that is not UTF-8
_FLOAT = re.compile(r"(?m)^( *\w+: )(-?\d+(?:\.\d+)?(?:e[-+]\d+)?)$")  # or a whole number: a line of one number
MAX_ESCAPES = 10**8  # limit of the squared lengths of backslash runs: protobuf decodes them in quadratic time


def decode(raw: bytes, path: str, *, what: str) -> str:
    """Decode a prototxt.  Comments may be in any encoding, as in Caffe; the rest is UTF-8."""
    if not raw.strip():
        raise InputError(f"is empty; a {what} is a text file", path=path)
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError("is UTF-16 text; save it as UTF-8", path=path)
    if b"\0" in raw:
        raise InputError(f"is binary; a {what} is a text file (give weights, .caffemodel, to --weights)", path=path)
    text = with_newlines(raw).decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    if not _UNDECODABLE.search(text):
        return text
    comments = {}
    for token in _tokens(text, path):
        if _UNDECODABLE.search(token.text):
            if token.kind != "comment":
                hint = f"has bytes that are not UTF-8 (column {token.column}); save the {what} as UTF-8"
                raise InputError(hint, path=path, line=token.line)
            comments[token.line] = token.column - 1
    lines = text.split("\n")
    for line, column in comments.items():
        lines[line - 1] = lines[line - 1][:column]
    return "\n".join(lines)


def parse(text: str, message: Message, path: str) -> Outline:
    """Fill `message` from `text`; return the outline with the line of each field.

    What a plan of a net can do without is set aside (unread.py): the message then has nothing of it.
    """
    try:
        layout = outline(text)
    except InputError as error:
        raise error.at(path=path) from None
    _check_escapes(text, path)
    if (token := layout.no_number) is not None:
        what = wrong_value(token, token.column, message, layout.at(token.line, token.column))
        raise InputError(what, path=path, line=token.line)
    plain = without_fork_fields(text, message, layout, path)
    unread = _parse_layers(plain.text, message, layout, path)
    for missing in message.FindInitializationErrors():
        raise _missing(missing, layout, path)
    return replace(layout, ignored=plain.notes, unread=unread)


def caffe_text(message: Message) -> str:
    """Return `message` as the C++ library of protobuf prints it: with floats of 6 or 9 digits, and escaped strings."""
    return _FLOAT.sub(
        lambda match: match[1] + _caffe_number(match[2]), text_format.MessageToString(message, as_utf8=False)
    )


def _caffe_number(text: str) -> str:
    if text.lstrip("-").isdecimal():
        return text
    value = np.float32(text)
    short = f"{value:.6g}"
    return short if np.float32(short) == value else f"{value:.9g}"


def _parse_layers(text: str, message: Message, layout: Outline, path: str) -> dict[Place, tuple[Unread, ...]]:
    """Parse `text` without what is set aside, which is returned by place of the layer; most texts have none."""
    try:
        _parse(text, message, layout, path)
    except InputError:
        known, unread = set_aside(text, message, layout, path)
        if not unread:
            raise
        message.Clear()
        _parse(known, message, layout, path)
        return unread
    return {}


def _parse(text: str, message: Message, layout: Outline, path: str) -> None:
    try:
        text_format.Parse(text, message)
    except text_format.ParseError as error:
        raise explain(error, text, message, layout, path) from None
    except RecursionError:
        raise InputError("has too many nested blocks; check its brackets", path=path) from None


def _tokens(text: str, path: str) -> Iterator[Token]:
    try:
        yield from tokens(text)
    except InputError as error:
        raise error.at(path=path) from None


def _check_escapes(text: str, path: str) -> None:
    """Raise InputError for an unknown escape, as in Caffe; the Python parser would keep it and only warn."""
    work = 0
    for token in _tokens(text, path) if "\\" in text else ():
        if token.kind != "string" or "\\" not in token.text:
            continue
        work += sum(len(run) ** 2 for run in _BACKSLASHES.findall(token.text))
        if work > MAX_ESCAPES:
            what = f"has too many backslashes in its strings (column {token.column}); write plain characters"
            raise InputError(what, path=path, line=token.line)
        unknown = [match[0] for match in _ESCAPED.finditer(token.text) if match[1] not in _ESCAPES]
        if unknown:
            what = f"the string at column {token.column} has the unknown escape '{unknown[0]}'; write "
            what += f"'\\{unknown[0]}', or / in a path"
            raise InputError(what, path=path, line=token.line)


def _missing(what: str, layout: Outline, path: str) -> InputError:
    """Return the error for a required field that is not set; `what` is its path, such as 'layer[3].clip_param.max'."""
    block, _, name = what.rpartition(".")
    repeated = re.match(r"(\w+)\[(\d+)\]", what)
    lines = layout.lines(repeated[1]) if repeated else []
    line = lines[int(repeated[2])] if repeated and int(repeated[2]) < len(lines) else None
    return InputError(f"'{block.rpartition('.')[2]}' has no '{name}', which is required; add it", path=path, line=line)
