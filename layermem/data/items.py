"""Reads images to predict on, one after the other: files, folders, lists of files, and databases.

    photo.jpg           a file
    photos/             every image file below it, in the order of names
    list.txt            one file per line, optionally with a label after it; relative to here or to the list
    test_lmdb/          every record of a database of Datums, with its label

An image that cannot be read becomes an Unreadable, and the others follow; a list, folder or database that cannot be
read is an InputError.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from layermem.data.database import is_database, open_database
from layermem.data.image_folder import IMAGE_ENDINGS
from layermem.data.images import decode
from layermem.data.list_source import IMAGE_LIMIT_BYTES, LIST_LIMIT_BYTES
from layermem.errors import InputError
from layermem.utils.input_files import Read, exists, file_beside, files_below, read_bytes, read_lines


@dataclass(frozen=True)
class Item:
    """An image [C,H,W] in blue, green, red."""

    name: str
    image: np.ndarray
    label: int | None = None


@dataclass(frozen=True)
class Unreadable:
    name: str
    error: InputError


def read_items(paths: list[str], *, color: bool, read: Read = read_bytes) -> Iterator[Item | Unreadable]:
    """The images at `paths`, in order, with three channels if `color` is set, else one.  `read` gets the bytes of
    lists."""
    for path in paths:
        if os.path.isdir(path):
            yield from _database(path, color) if is_database(Path(path)) else _folder(Path(path), color)
        elif path.endswith(".txt"):
            yield from _list(Path(path), color, read)
        else:
            yield _file(path, path, color)


def count_items(paths: list[str], read: Read = read_bytes) -> int | None:
    """The number of images at `paths` without reading any; None if that takes too long.  `read` gets the bytes of
    lists."""
    total = 0
    for path in paths:
        if os.path.isdir(path):
            if is_database(Path(path)):
                return None
            total += len(_images_below(Path(path)))
        elif path.endswith(".txt"):
            if not os.path.isfile(path):
                return None
            total += len(_lines(Path(path), read))
        else:
            total += 1
    return total


def _file(path: str | Path, name: str, color: bool, label: int | None = None) -> Item | Unreadable:
    try:
        return Item(name, decode(read_bytes(path, what="image", limit=IMAGE_LIMIT_BYTES), color=color), label)
    except InputError as error:
        return Unreadable(name, error.at(path=str(path)))


def _folder(folder: Path, color: bool) -> Iterator[Item | Unreadable]:
    found = _images_below(folder)
    if not found:
        what = f"has no images ({' '.join(IMAGE_ENDINGS)}); give another folder, or name the files"
        raise InputError(what, path=str(folder))
    for path in found:
        yield _file(path, str(path), color)


def _images_below(folder: Path) -> list[Path]:
    return [
        path for path in files_below(folder) if path.suffix.lower() in IMAGE_ENDINGS and not path.name.startswith(".")
    ]


def _lines(path: Path, read: Read) -> list[str]:
    lines = read_lines(path, what="list of images", limit=LIST_LIMIT_BYTES, read=read, names=True)
    return [line.strip() for line in lines if line.strip()]


def _list(path: Path, color: bool, read: Read) -> Iterator[Item | Unreadable]:
    lines = _lines(path, read)
    if not lines:
        raise InputError("lists no images; write a path in each line", path=str(path))
    for line in lines:
        name, label = line, None
        *head, last = line.rsplit(None, 1)
        if head and last.lstrip("-").isdecimal() and not exists(file_beside(line, path.parent)):
            name, label = head[0], int(last)
        yield _file(file_beside(name, path.parent), name, color, label)


def _database(path: str, color: bool) -> Iterator[Item | Unreadable]:
    source = open_database(Path(path), labels=False, color=color)
    try:
        for index in range(source.length):
            image, label = source.read_one()
            yield Item(f"{path}:{index}", image, label)
    finally:
        source.close()
