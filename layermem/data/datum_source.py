"""Images and labels of a database of Datums, in the order of its keys, cyclically.

The kinds (*_database.py) step through their records; this module interprets a record.
The state is the key of the next record, so that a resumed run finds it without reading the records before it.
source  Caffe data_layer.cpp, db.cpp
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np
from google.protobuf.message import DecodeError

from layermem.data.images import Cut, datum_image, decoding_bytes, whole
from layermem.data.position import State
from layermem.errors import InputError
from layermem.proto.schema import Datum, Message
from layermem.utils.mapped_pages import release_pages

MAPPED_BYTES = 2**21  # of records that are read before the pages of the database are given back
HELD_BYTES = 2 * MAPPED_BYTES  # of pages at a time, at most, those around the records included
RECORD_COPIES = 4  # of a record's bytes: its pages, as the library gives them, in its message, and out of it
RECORD_BYTES = 2**12  # that count for a record of which only the key is read: a page


Kind = TypeVar("Kind", bound="DatumSource")
Record = tuple[bytes, Message]  # key, Datum
Write = Callable[[list[Record]], None]  # adds records in one transaction
KINDS: dict[str, type[DatumSource]] = {}  # by name in small letters, as far as their modules are loaded


class DatumSource(ABC):
    """Reads `path`; `color` as in images.datum_image.  With `labels`, a record without a label is an error."""

    kind: str  # "LMDB" or "LevelDB"
    package: ClassVar[str]  # that it needs
    install: ClassVar[str]  # the command that installs it
    log_place: ClassVar[str] = "db.cpp:1"  # of the line in which Caffe's log says that one was opened
    identity: tuple[int, ...]  # of a file of the database, which changes when it is made again

    def __init__(self, path: Path, *, labels: bool, color: bool | None = None):
        self.path, self.labels, self.color = path, labels, color
        self._key = b""  # key of the next record
        self._folder = Path(os.path.realpath(path))  # resolve() raises for a link to itself
        self._mapped_bytes = 0
        self._channels: int | None = None  # of all images, by the first one

    # -- the database ------------------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def holds(cls, path: Path) -> bool:
        """Whether the files at `path` are those of such a database."""

    @classmethod
    @abstractmethod
    def is_installed(cls) -> bool:
        """Whether the package is installed."""

    @classmethod
    @abstractmethod
    def writing(cls, folder: Path) -> AbstractContextManager[Write]:
        """A context with a function that adds records to the new database in the empty `folder`; errors are
        OSErrors."""

    @property
    @abstractmethod
    def length(self) -> int:
        """The number of records."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[None]:
        """A context that turns every error of the library into an InputError."""

    @abstractmethod
    def _value(self) -> bytes:
        """The bytes of the next record."""

    @abstractmethod
    def _values(self) -> Iterator[memoryview | bytes]:
        """Yield all records in the order of their keys without moving the position.  A record is valid until the next
        one."""

    @abstractmethod
    def _advance(self) -> None:
        """Make the following record (after the last, the first) the next one, and set its key."""

    @abstractmethod
    def restore(self, state: State) -> None: ...

    @abstractmethod
    def check(self, state: State) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    # -- records -----------------------------------------------------------------------------------------------

    def first_shape(self) -> tuple[int, ...]:
        """Shape [C,H,W] of the next record, without advancing."""
        with self._reading():
            return self._image(self._datum()).shape

    def first_is_raw(self) -> bool:
        """Whether the next record holds pixels, not an encoded image."""
        with self._reading():
            return not self._datum().encoded

    def read(self, count: int, cut: Cut = whole) -> tuple[list[np.ndarray], np.ndarray]:
        """Return `cut(i, image)` for each of the next `count` images, decoded one by one, and their labels as float32
        (zeros if `labels` is off)."""
        images, labels = [], np.zeros(count, np.float32)
        with self._reading():
            for index in range(count):
                image, labels[index] = self._cut(index, cut)
                images.append(image)
                self._advance()
        return images, labels

    def _cut(self, index: int, cut: Cut) -> tuple[np.ndarray, int]:
        """Return `cut(index, image)` for the next image, and its label."""
        datum = self._datum()
        if self.labels and not datum.HasField("label"):
            raise self._error(f"has no label; write labels into the {self.kind}, or give the data layer a single top")
        image = self._image(datum)
        self._check_channels(datum, image.shape[0])
        return cut(index, image), datum.label if self.labels else 0

    def skip(self, count: int) -> None:
        """Skip `count` records; only their keys are read."""
        with self._reading():
            for _ in range(count):
                self._advance()
                self._count_mapped(RECORD_BYTES)

    def datums(self) -> Iterator[Message | None]:
        """Yield the Datum of every record in the order of keys, or None for an invalid one, without moving the
        position."""
        with self._reading():
            for value in self._counted_values():
                try:
                    yield Datum.FromString(bytes(value))
                except DecodeError:
                    yield None

    def read_one(self) -> tuple[np.ndarray, int | None]:
        """The next image and its label; the label is None for a record without one."""
        with self._reading():
            datum = self._datum()
            image, label = self._image(datum), int(datum.label) if datum.HasField("label") else None
            self._advance()
        return image, label

    @property
    def held_bytes(self) -> int:
        """Bytes of the pages that are in memory at a time, and of the next record while it is read; the others are
        taken to be no larger."""
        with self._reading():
            datum = self._datum()
        copies = RECORD_COPIES * int(datum.ByteSize()) + growth_bytes(len(datum.float_data))
        return pages_bytes(self.path) + copies + (decoding_bytes(datum.data) if datum.encoded else 0)

    def state(self) -> State:
        return {"key": self._key.hex()}

    def _count_mapped(self, nbytes: int) -> None:
        """Count bytes that were read: their pages are mapped, and would add up to the whole database."""
        self._mapped_bytes += nbytes
        if self._mapped_bytes > MAPPED_BYTES:
            self._mapped_bytes = 0
            release_pages(self._folder)

    def _counted_values(self) -> Iterator[memoryview | bytes]:
        for value in self._values():
            self._count_mapped(len(value))
            yield value

    def _counted_value(self) -> bytes:
        value = self._value()
        self._count_mapped(len(value))
        return value

    def _datum(self) -> Message:
        try:
            return Datum.FromString(self._counted_value())
        except DecodeError:
            raise self._error(
                f"is not a Datum; create the {self.kind} with convert_imageset or a similar tool"
            ) from None

    def _image(self, datum: Message) -> np.ndarray:
        try:
            return datum_image(datum, color=self.color)
        except InputError as error:
            raise self._error(error.what) from None

    def _check_channels(self, datum: Message, channels: int) -> None:
        self._channels = self._channels or channels
        if channels != self._channels:
            remedy = (
                "set force_color: true or force_gray: true in transform_param" if datum.encoded else "write it again"
            )
            raise self._error(f"has an image of {channels} channels after images of {self._channels}; {remedy}")

    def _missing(self, key: bytes) -> InputError:
        """The error for a snapshot whose key is not in the database."""
        return InputError(
            f"has no record '{_printable(key[:80])}', the next one of the snapshot; restore the {self.kind} of that "
            "run",
            path=str(self.path),
        )

    def _error(self, what: str) -> InputError:
        record = f"(record '{_printable(self._key)}') " if self._key else ""
        return InputError(f"{record}{what}", path=str(self.path))


def database(cls: type[Kind]) -> type[Kind]:
    """Register a kind of database."""
    KINDS[cls.kind.lower()] = cls
    return cls


def pages_bytes(path: Path) -> int:
    """Bytes of the pages of a database that are in memory at a time."""
    files = [path] if path.is_file() else [file for file in path.glob("*") if file.is_file()]
    return min(HELD_BYTES, sum(512 * file.stat().st_blocks for file in files))


def growth_bytes(count: int) -> int:
    """Bytes of a message's `count` repeated floats while it is read: their array is made anew, twice as large, until
    they fit, and what it outgrows is kept as long as the message."""
    return 2 * 4 * (1 << (count - 1).bit_length()) if count else 0


def _printable(key: bytes) -> str:
    return key.decode("ascii", "backslashreplace")
