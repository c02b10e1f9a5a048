"""The records of a LevelDB (datum_source.py), the default backend of Caffe's Data layer, through the package plyvel.

Only one process at a time may open a LevelDB, so all readers of a process share it.  Opening converts its log into a
table, which needs a writable folder, as in Caffe.  The checksum of every block that is read is verified.
source  Caffe db_leveldb.cpp
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from layermem.data.datum_source import DatumSource, Record, Write, database
from layermem.data.open_databases import FileId, OpenDatabases
from layermem.data.position import State, bytes_in
from layermem.errors import InputError

try:
    import plyvel
except ImportError:  # optional; only nets that read a LevelDB need it
    plyvel = None

CURRENT = "CURRENT"  # a file that every LevelDB has
LOCK = "LOCK"  # a file that every open LevelDB has and keeps locked
_open_databases: OpenDatabases[Any] = OpenDatabases()  # by device, inode and time of LOCK


@database
class LevelDbSource(DatumSource):
    kind = "LevelDB"
    package, install = "plyvel", "pip install 'layermem[leveldb]'"
    log_place = "db_leveldb.cpp:18"

    @classmethod
    def holds(cls, path: Path) -> bool:
        return os.path.exists(path / CURRENT)

    @classmethod
    def is_installed(cls) -> bool:
        return plyvel is not None

    @classmethod
    @contextmanager
    def writing(cls, folder: Path) -> Iterator[Write]:
        """The options are those of Caffe."""
        options = {"block_size": 65536, "write_buffer_size": 2**28, "max_open_files": 100}
        try:
            with plyvel.DB(os.fsencode(folder), create_if_missing=True, **options) as database:

                def write(records: list[Record]) -> None:
                    with database.write_batch() as batch:
                        for key, datum in records:
                            batch.put(key, datum.SerializeToString())

                yield write
        except plyvel.Error as error:
            raise OSError(_reason(error)) from None

    def __init__(self, path: Path, *, labels: bool, color: bool | None = None, skip: int = 0):
        super().__init__(path, labels=labels, color=color)
        self.identity, self._database = _acquire(self._folder, path)
        self._closed, self._process = False, os.getpid()
        self._length: int | None = None
        try:
            with self._reading():
                self._cursor = self._new_cursor()
                self._to_first()
                for _ in range(skip):
                    self._advance()
        except BaseException:
            self.close()
            raise

    @property
    def length(self) -> int:
        """Number of records, counted on demand because a LevelDB does not store it."""
        if self._length is None:
            with self._reading():
                cursor = self._new_cursor()
                cursor.seek_to_first()
                self._length = 0
                while cursor.valid():
                    self._length += 1
                    self._count_mapped(len(cursor.value()))
                    cursor.next()
        return self._length

    def restore(self, state: State) -> None:
        key = bytes_in(state, "key")
        with self._reading():
            cursor = self._new_cursor()
            self._go_to(cursor, key)
            self._cursor, self._key = cursor, key

    def check(self, state: State) -> None:
        key = bytes_in(state, "key")
        with self._reading():  # a thread may be reading with the other cursor
            self._go_to(self._new_cursor(), key)

    def _go_to(self, cursor: Any, key: bytes) -> None:
        cursor.seek(key)
        if not cursor.valid() or cursor.key() != key:
            raise self._missing(key)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._cursor = None
            if self._process == os.getpid():  # a forked child lacks the threads of the database
                _open_databases.release(self.identity)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except plyvel.Error as error:
            self._check_same()
            raise self._error(f"is damaged ({_reason(error)}); create the LevelDB again") from None
        self._check_same()

    def _check_same(self) -> None:
        """Raise InputError if another database has replaced this one, whose files are opened by name."""
        if _id_of(self._folder) != self.identity:
            what = "has been removed or made again since it was opened; make the net again"
            raise InputError(what, path=str(self.path))

    def _new_cursor(self) -> Any:
        return self._database.raw_iterator(verify_checksums=True, fill_cache=False)

    def _to_first(self) -> None:
        self._cursor.seek_to_first()
        if not self._cursor.valid():
            what = "is a LevelDB without records, or is damaged; create it again, or change the source"
            raise InputError(what, path=str(self.path))
        self._key = bytes(self._cursor.key())

    def _value(self) -> bytes:
        return bytes(self._cursor.value())

    def _values(self) -> Iterator[memoryview | bytes]:
        cursor = self._new_cursor()
        cursor.seek_to_first()
        while cursor.valid():
            yield bytes(cursor.value())
            cursor.next()

    def _advance(self) -> None:
        self._cursor.next()
        if self._cursor.valid():
            self._key = bytes(self._cursor.key())
        else:
            self._to_first()


def _reason(error: Exception) -> str:
    text = error.args[0] if error.args else ""
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)


def _id_of(folder: Path) -> FileId | None:
    """Values that differ between the lock file of the database in `folder` and one that is made later; None before the
    first opening."""
    try:
        status = os.stat(folder / LOCK)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _acquire(folder: Path, path: Path) -> tuple[FileId, Any]:
    """The database of this process for the present contents of `folder`; the first user opens it."""
    with _open_databases.lock:
        key = _id_of(folder)
        database = _open_databases.get(key)
        if database is None:
            name = str(folder)
            while any(os.fsencode(name) == taken.name for taken in _open_databases.handles):
                name += "/."  # LevelDB locks names, and this one belongs to a database that was removed
            database = _open(folder, name, path)
            key = _id_of(folder)
        if key is None:
            database.close()
            raise InputError("was removed while it was opened; make it again", path=str(path))
        _open_databases.add(key, database)
        return key, database


def _open(resolved: Path, name: str, path: Path) -> Any:
    if not LevelDbSource.holds(resolved):  # opening would create files
        what = f"is not a LevelDB, or is damaged (there is no file {CURRENT}); make it again"
        raise InputError(what, path=str(path))
    if plyvel is None:
        what = "is a LevelDB, and the Python package for it is missing; install it: "
        what += f"{LevelDbSource.install}, or convert it to LMDB"
        raise InputError(what, path=str(path))
    try:
        return plyvel.DB(os.fsencode(name), create_if_missing=False, paranoid_checks=True)
    except (plyvel.Error, UnicodeEncodeError) as error:
        reason = _reason(error)
        if "lock" in reason.lower():
            what = (
                f"cannot be opened ({reason}); a LevelDB is open in one process at a time: end the other one, or "
                "convert it to LMDB, which several ranks can read"
            )
        elif not os.access(resolved, os.W_OK):
            what = f"cannot be opened ({reason}); make the folder writable, which a LevelDB needs, or copy it"
        else:
            what = f"is not a LevelDB, or is damaged ({reason}); make it again"
        raise InputError(what, path=str(path)) from None
