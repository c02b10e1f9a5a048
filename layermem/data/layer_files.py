"""The paths of an input layer's files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from layermem.errors import InputError
from layermem.proto.read import resolve_path

ResolvePath = Callable[[str], Path]  # a file name in the prototxt -> the file


def resolver(path: str, remedy: str = "") -> ResolvePath:
    """A function that resolves file names in the net at `path`; `remedy` ends the message about a missing file."""

    def resolve(name: str) -> Path:
        if not name:
            raise InputError("has no source; set it to the path of the data")
        try:
            return resolve_path(name, path)
        except InputError as missing:
            raise InputError(f"cannot read its data: {missing.what}{remedy}") from None

    return resolve
