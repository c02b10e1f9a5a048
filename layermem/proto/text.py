"""Reads prototxt files into messages: bytes, then characters, then fields, with an error message for each step.

The protobuf package does the parsing; explain.py rewrites its errors.
"""

from __future__ import annotations

import os
import re
from os import PathLike

from google.protobuf import text_format

from layermem.errors import InputError
from layermem.proto.explain import explain
from layermem.proto.outline import Outline, outline, tokens
from layermem.proto.schema import Message
from layermem.utils.units import format_bytes

_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = "abfnrtv\\'\"?01234567xXuU"  # those of C, as in Caffe's parser

TEXT_LIMIT = 64 * 2**20  # bytes; a net of 2504 layers takes 1 MiB


def read_bytes(path: str | PathLike[str], *, what: str, limit: int) -> bytes:
    """The content of a file that should be a `what`, of at most `limit` bytes."""
    try:
        with open(path, "rb") as handle:
            size = os.fstat(handle.fileno()).st_size  # 0 for a pipe, which may still have no end
            raw = handle.read(limit + 1) if size <= limit else b""
    except FileNotFoundError:
        raise InputError(f"no such file; give an existing {what}", path=str(path)) from None
    except IsADirectoryError:
        raise InputError(f"is a folder; give the {what} inside it", path=str(path)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot be read as a {what}: {reason}", path=str(path)) from None
    if max(size, len(raw)) > limit:
        raise InputError(f"is larger than {format_bytes(limit)}, the limit of a {what}", path=str(path))
    return raw


def decode(raw: bytes, path: str, *, what: str) -> str:
    """The text of a prototxt.  Comments may be in any encoding, as in Caffe; the rest is UTF-8."""
    if not raw.strip():
        raise InputError(f"is empty; a {what} is a text file", path=path)
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError("is UTF-16 text; save it as UTF-8", path=path)
    if b"\0" in raw:
        raise InputError(f"is binary; a {what} is a text file (give weights, .caffemodel, to --weights)", path=path)
    text = raw.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    if text.isascii():
        return text
    comments = {}
    for token in tokens(text):
        if any("\udc80" <= c <= "\udcff" for c in token.text):
            if token.kind != "comment":
                hint = f"has bytes that are not UTF-8 (column {token.column}); save the {what} as UTF-8"
                raise InputError(hint, path=path, line=token.line)
            comments[token.line] = token.column - 1
    lines = text.split("\n")
    for line, column in comments.items():
        lines[line - 1] = lines[line - 1][:column]
    return "\n".join(lines)


def parse(text: str, message: Message, path: str) -> Outline:
    """Fill `message` from `text`; the outline with the line of each field."""
    layout = outline(text)
    _check_escapes(text, path)
    try:
        text_format.Parse(text, message)
    except text_format.ParseError as error:
        raise explain(error, text, message, layout, path) from None
    except RecursionError:
        raise InputError("has too many nested blocks; check its brackets", path=path) from None
    for missing in message.FindInitializationErrors():
        raise _missing(missing, layout, path)
    return layout


def _check_escapes(text: str, path: str) -> None:
    """InputError for an unknown escape, as in Caffe; the Python parser would keep it and only warn."""
    for token in tokens(text) if "\\" in text else ():
        unknown = [match[0] for match in _ESCAPED.finditer(token.text) if match[1] not in _ESCAPES]
        if token.kind == "string" and unknown:
            what = f"the string at column {token.column} has the unknown escape '{unknown[0]}'; write '\\{unknown[0]}'"
            raise InputError(what, path=path, line=token.line)


def _missing(what: str, layout: Outline, path: str) -> InputError:
    """The error for a required field that is not set; `what` is its path, such as 'layer[3].clip_param.max'."""
    block, _, name = what.rpartition(".")
    repeated = re.match(r"(\w+)\[(\d+)\]", what)
    lines = layout.lines(repeated[1]) if repeated else []
    line = lines[int(repeated[2])] if repeated and int(repeated[2]) < len(lines) else None
    return InputError(f"'{block.rpartition('.')[2]}' has no '{name}', which is required; add it", path=path, line=line)
