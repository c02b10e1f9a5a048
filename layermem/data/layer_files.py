"""The files of an input layer: their paths and the number of items in a batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from layermem.errors import InputError
from layermem.layers.data import FROM_FILES
from layermem.proto.read import resolve_path
from layermem.proto.schema import Message

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


def batch_size(param: Message) -> int:
    block = FROM_FILES[param.type]
    batch: int = getattr(param, block).batch_size
    if batch < 1:
        raise InputError(f"has batch_size {batch}; set {block} {{ batch_size }} to at least 1")
    return batch
