"""Images and labels of an LMDB of Datums, in the order of its keys, cyclically.

The state is the key of the next record, so that a resumed run finds it without reading the records before it.
source  Caffe data_layer.cpp, db_lmdb.cpp
"""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError

from layermem.data.images import datum_image
from layermem.errors import InputError
from layermem.proto.schema import Datum, Message

try:
    import lmdb
except ImportError:  # only nets that read an LMDB need it
    lmdb = None  # type: ignore[assignment]

_environments: dict[Path, tuple[lmdb.Environment, int]] = {}  # by resolved path, with a reference count
_lock = threading.Lock()  # LMDB allows one environment per process and path


class LmdbSource:
    """Reads `path`; `color` as in images.datum_image.  With `labels`, a record without a label is an error."""

    def __init__(self, path: Path, *, labels: bool, color: bool | None = None, skip: int = 0):
        self.path, self.labels, self.color = path, labels, color
        self._resolved = path.resolve()
        self._env = _acquire(self._resolved, path)
        self._closed = False
        try:
            self.length: int = self._env.stat()["entries"]
            if self.length == 0:
                raise InputError("is an empty LMDB; add records, or change the source", path=str(path))
            self._cursor = self._env.begin().cursor()
            self._to_first()
            for _ in range(skip % self.length):
                self._advance()
        except BaseException:
            self.close()
            raise

    def first_shape(self) -> tuple[int, ...]:
        """Shape [C,H,W] of the next record, without advancing."""
        return self._image(self._datum()).shape

    def read(self, count: int) -> tuple[list[np.ndarray], np.ndarray]:
        """The next `count` images, and their labels as float32 (zeros if `labels` is off)."""
        images, labels = [], np.zeros(count, np.float32)
        for index in range(count):
            datum = self._datum()
            images.append(self._image(datum))
            if self.labels:
                if not datum.HasField("label"):
                    raise self._error("has no label; write labels into the LMDB, or give the data layer a single top")
                labels[index] = datum.label
            self._advance()
        return images, labels

    def state(self) -> dict[str, int | str]:
        return {"key": bytes(self._cursor.key()).hex()}

    def restore(self, state: dict[str, int | str]) -> None:
        key = bytes.fromhex(str(state["key"]))
        if not self._cursor.set_key(key):
            raise InputError(
                f"has no record '{_printable(key)}', the next one of the snapshot; restore the LMDB of that run",
                path=str(self.path),
            )

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            _release(self._resolved)

    def _to_first(self) -> None:
        try:
            exists = self._cursor.first()
        except lmdb.Error as error:
            raise self._error(f"is damaged ({error}); create the LMDB again") from None
        if not exists:
            raise self._error("is damaged (it counts records but has none); create the LMDB again")

    def _advance(self) -> None:
        try:
            more = self._cursor.next()
        except lmdb.Error as error:
            raise self._error(f"is damaged ({error}); create the LMDB again") from None
        if not more:
            self._to_first()

    def _datum(self) -> Message:
        try:
            return Datum.FromString(self._cursor.value())
        except DecodeError:
            raise self._error("is not a Datum; create the LMDB with convert_imageset or a similar tool") from None

    def _image(self, datum: Message) -> np.ndarray:
        try:
            return datum_image(datum, color=self.color)
        except InputError as error:
            raise self._error(error.what) from None

    def _error(self, what: str) -> InputError:
        return InputError(f"(record '{_printable(self._cursor.key())}') {what}", path=str(self.path))


def _printable(key: bytes) -> str:
    return bytes(key).decode("ascii", "backslashreresolved")


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
    try:
        env = lmdb.open(str(resolved), subdir=resolved.is_dir(), readonly=True, lock=False, readahead=False)
    except lmdb.Error as error:
        raise InputError(f"is not an LMDB, or is damaged ({error})", path=str(path)) from None
    file = resolved / "data.mdb" if resolved.is_dir() else resolved
    size = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    if file.stat().st_size < size:  # reading past the end of a mapped file raises SIGBUS
        env.close()
        raise InputError(f"is truncated: {file.stat().st_size:,} of {size:,} bytes; copy it again", path=str(path))
    return env
