"""The records of an LMDB (datum_source.py).

As in Caffe, the environment is opened with LMDB's lock table: a process that writes at the same time reuses no page
that is being read, and readers see the records of the moment when they began.  The lock table is left out only if
neither it nor the folder is writable, or if the file system has no locks.

A folder that is removed and made again counts as another database, also for a process that still reads the old one.
source  Caffe db_lmdb.cpp
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from layermem.data.datum_source import DatumSource, Record, Write, database
from layermem.data.open_databases import FileId, OpenDatabases
from layermem.data.position import State, bytes_in
from layermem.errors import InputError
from layermem.utils.input_files import check_regular, exists, unreadable
from layermem.utils.open_file import Identity, identity

try:
    import lmdb
except ImportError:  # only nets that read an LMDB need it
    lmdb = None  # type: ignore[assignment]

MAP_BYTES = 1 << 40  # limit of a new file, as in Caffe; the file is only as long as its content
NO_LOCKS = errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP  # errors of file systems without locks
# By device and inode, which are unique while a file is open: LMDB allows one environment per process and file.
_environments: OpenDatabases[lmdb.Environment] = OpenDatabases()


@database
class LmdbSource(DatumSource):
    kind = "LMDB"
    package, install = "lmdb", "pip install lmdb"
    log_place = "db_lmdb.cpp:35"

    @classmethod
    def holds(cls, path: Path) -> bool:
        return exists(path / "data.mdb") or os.path.isfile(path)

    @classmethod
    def is_installed(cls) -> bool:
        return lmdb is not None

    @classmethod
    @contextmanager
    def writing(cls, folder: Path) -> Iterator[Write]:
        try:
            with closing(lmdb.open(os.fsencode(folder), map_size=MAP_BYTES)) as environment:

                def write(records: list[Record]) -> None:
                    with environment.begin(write=True) as transaction:
                        for key, datum in records:
                            transaction.put(key, datum.SerializeToString(), append=True)

                yield write
        except lmdb.Error as error:
            raise OSError(str(error)) from None
        (folder / "lock.mdb").unlink(missing_ok=True)

    def __init__(self, path: Path, *, labels: bool, color: bool | None = None, skip: int = 0):
        super().__init__(path, labels=labels, color=color)
        self._file, self.identity, self._env = _acquire(path)
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
            if self._process == os.getpid():  # a forked child would release the parent's read lock
                _environments.release(self._file)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except lmdb.Error as error:
            if refusal := _of_system(error, self.path):
                raise refusal from None
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


def _acquire(path: Path) -> tuple[FileId, Identity, lmdb.Environment]:
    """The data file of the LMDB at `path`, its identity, and its environment here, which the first user opens."""
    if lmdb is None:
        raise InputError(
            f"is an LMDB, and the Python package for it is missing; install it: {LmdbSource.install}", path=str(path)
        )
    with _environments.lock:
        try:
            folder = Path(os.path.realpath(path))
            file = folder / "data.mdb" if folder.is_dir() else folder
            size = check_regular(file, what="LMDB") if exists(file) else None  # opening would create a lock file
            if not size:
                reason = f"there is no file {file.name}" if size is None else f"{file.name} is empty"
                raise InputError(f"is not an LMDB, or is damaged ({reason}); make it again", path=str(path))
            status = file.stat()
            key = _id_of(status)
            known = _environments.get(key)
            env = _open_environment(folder, subdir=folder != file) if known is None else known
        except OSError as error:
            raise unreadable(path, "LMDB", error) from None
        except lmdb.Error as error:
            raise _refusal(error, path) from None
        try:
            fault = _fault(env, file, key)
        except lmdb.Error as error:
            fault = f"is damaged ({error}); make it again"
        if fault:
            if known is None:
                env.close()
            raise InputError(fault, path=str(path))
        _environments.add(key, env)
        return key, identity(status), env


def _id_of(status: os.stat_result) -> FileId:
    return status.st_dev, status.st_ino


def _open_environment(folder: Path, *, subdir: bool) -> lmdb.Environment:
    options = {"subdir": subdir, "readonly": True, "readahead": False}
    try:
        env = lmdb.open(os.fsencode(folder), lock=True, **options)
        env.reader_check()  # frees the entries of killed readers
        return env
    except lmdb.Error as error:
        if not isinstance(error, lmdb.ReadonlyError) and getattr(error, "code", None) not in NO_LOCKS:
            raise
        return lmdb.open(os.fsencode(folder), lock=False, **options)


def _refusal(error: lmdb.Error, path: Path) -> InputError:
    """The reason why an LMDB cannot be opened, with a remedy."""
    if refusal := _of_system(error, path):
        return refusal
    if "already open in this process" in str(error):
        what = "is open in this process, by another user of the package lmdb; close that environment first"
    elif isinstance(error, lmdb.ReadersFullError):
        what = "has as many readers as it may have; end some of them, or remove its lock.mdb while none reads it"
    elif isinstance(error, lmdb.MapResizedError):
        what = "has grown while it was opened; start again"
    elif isinstance(error, lmdb.VersionMismatchError):
        what = f"was written by another version of LMDB ({error}); copy it with that version's mdb_copy"
    else:
        what = f"is not an LMDB, or is damaged ({error}); make it again"
    return InputError(what, path=str(path))


def _of_system(error: lmdb.Error, path: Path) -> InputError | None:
    """The error of a system that refused a file of the LMDB; None for errors of LMDB, whose numbers are negative."""
    number = getattr(error, "code", None) or 0
    return unreadable(path, "LMDB", OSError(number, os.strerror(number))) if number > 0 else None


def _fault(env: lmdb.Environment, file: Path, key: FileId) -> str | None:
    """The problem of the open `file` of an environment; None if its records can be read."""
    try:
        status = file.stat()
    except OSError:
        return "was removed while it was opened; restore it"
    if _id_of(status) != key:
        return "was made again while it was opened; start again"
    size = status.st_size
    whole = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    if size < whole:  # reading past the end of a mapped file raises SIGBUS
        return f"is truncated: {size:,} of {whole:,} bytes; copy it again"
    if whole > env.info()["map_size"]:
        return "has grown since a net of this process opened it; close that net first"
    for _ in range(100):  # a writer counts a transaction in the file, and just after it in the lock table
        first = env.info()["last_txnid"]
        with env.begin() as transaction:
            if first <= transaction.id() <= env.info()["last_txnid"]:
                return None
        time.sleep(0.001)
    return "has been written over since a net of this process opened it; close that net first"
