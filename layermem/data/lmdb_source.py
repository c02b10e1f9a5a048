"""The records of an LMDB (datum_source.py).

As in Caffe, the environment is opened with LMDB's lock table, so that a process that writes to it meanwhile reuses no
page that is being read; reading goes on in the records as they were when it began.  Without the lock table only where
neither it nor the folder can be written.
source  Caffe db_lmdb.cpp
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from layermem.data.datum_source import DatumSource
from layermem.data.position import State, bytes_in
from layermem.errors import InputError

try:
    import lmdb
except ImportError:  # only nets that read an LMDB need it
    lmdb = None  # type: ignore[assignment]

_environments: dict[Path, tuple[lmdb.Environment, int]] = {}  # by resolved path, with a reference count
_lock = threading.Lock()  # LMDB allows one environment per process and path


class LmdbSource(DatumSource):
    kind = "LMDB"

    def __init__(self, path: Path, *, labels: bool, color: bool | None = None, skip: int = 0):
        super().__init__(path, labels=labels, color=color)
        self._resolved = path.resolve()
        self._env = _acquire(self._resolved, path)
        self._closed, self._process = False, os.getpid()
        try:
            with self._reading():
                self._transaction = self._env.begin()
                self._cursor = self._transaction.cursor()
                self._length: int = self._transaction.stat(self._env.open_db())["entries"]
                if self.length == 0:
                    raise InputError("is an empty LMDB; add records, or change the source", path=str(path))
                self._to_first()
                for _ in range(skip % self.length):
                    self._advance()
        except BaseException:
            self.close()
            raise

    @property
    def length(self) -> int:
        return self._length

    def skip(self, count: int) -> None:
        super().skip(count % self.length)

    def restore(self, state: State) -> None:
        key = bytes_in(state, "key")
        with self._reading():
            cursor = self._transaction.cursor()  # a thread of a parent process may have stopped inside the other one
            self._go_to(cursor, key)
            self._cursor, self._key = cursor, key

    def check(self, state: State) -> None:
        key = bytes_in(state, "key")
        with self._reading(), self._env.begin() as transaction:  # a thread may be reading in the other one
            self._go_to(transaction.cursor(), key)

    def _go_to(self, cursor: lmdb.Cursor, key: bytes) -> None:
        if len(key) > self._env.max_key_size() or not cursor.set_key(key):
            raise self._missing(key)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._process == os.getpid():  # in a forked child, this would end the parent's protection from writers
                _release(self._resolved)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except lmdb.Error as error:
            raise self._error(f"is damaged ({error}); create the LMDB again") from None

    def _to_first(self) -> None:
        if not self._cursor.first():
            raise self._error("is damaged (it counts records but has none); create the LMDB again")
        self._key = bytes(self._cursor.key())

    def _value(self) -> bytes:
        return bytes(self._cursor.value())

    def _values(self) -> Iterator[memoryview | bytes]:
        with self._env.begin(buffers=True) as transaction:
            yield from (value for _, value in transaction.cursor())

    def _advance(self) -> None:
        if self._cursor.next():
            self._key = bytes(self._cursor.key())
        else:
            self._to_first()


def _new_lock() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)  # another thread may have held the lock


def _acquire(resolved: Path, path: Path) -> lmdb.Environment:
    """The environment of this process at `resolved`, opened by its first user."""
    with _lock:
        env, users = _environments.get(resolved, (None, 0))
        if env is None:
            env = _open_environment(resolved, path)
        _environments[resolved] = (env, users + 1)
        return env


def _release(resolved: Path) -> None:
    with _lock:
        env, users = _environments.pop(resolved)
        if users > 1:
            _environments[resolved] = (env, users - 1)
        else:
            env.close()


def _open_environment(resolved: Path, path: Path) -> lmdb.Environment:
    if lmdb is None:
        raise InputError(
            "is an LMDB, and the Python package for it is missing; install it: pip install lmdb", path=str(path)
        )
    file = resolved / "data.mdb" if resolved.is_dir() else resolved
    if not file.is_file():  # opening would leave a lock file there
        raise InputError(f"is not an LMDB, or is damaged (there is no file {file.name}); make it again", path=str(path))
    options = {"subdir": resolved.is_dir(), "readonly": True, "readahead": False}
    try:
        try:
            env = lmdb.open(str(resolved), lock=True, **options)
            env.reader_check()  # frees the entries of killed readers
        except lmdb.ReadonlyError:
            env = lmdb.open(str(resolved), lock=False, **options)
    except lmdb.Error as error:
        raise InputError(f"is not an LMDB, or is damaged ({error}); make it again", path=str(path)) from None
    size = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    if file.stat().st_size < size:  # reading past the end of a mapped file raises SIGBUS
        env.close()
        raise InputError(f"is truncated: {file.stat().st_size:,} of {size:,} bytes; copy it again", path=str(path))
    return env
