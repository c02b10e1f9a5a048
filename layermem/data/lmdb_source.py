"""Images and labels of an LMDB of Datums, in the order of its keys, round and round.

The state is the key of the record that comes next, so that a resume starts there without a walk.
source  Caffe data_layer.cpp, db_lmdb.cpp
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from layermem.data.images import datum_image
from layermem.errors import InputError
from layermem.proto.schema import Datum

try:
    import lmdb
except ImportError:  # a bare machine trains all nets but those that read one
    lmdb = None  # type: ignore[assignment]

_open: dict[Path, tuple[lmdb.Environment, int]] = {}  # environments of this process and how many use each
_guard = threading.Lock()  # LMDB allows a process one environment for each path


class LmdbSource:
    """Reads `path`; `color` as in images.datum_image.  With labels, a record without one is refused."""

    def __init__(self, path: Path, *, labels: bool, color: bool | None = None, skip: int = 0):
        self.path, self.labels, self.color = path, labels, color
        self._place = path.resolve()
        self._env = _acquire(self._place, path)
        self._closed = False
        try:
            self.length: int = self._env.stat()["entries"]
            if self.length == 0:
                raise InputError("is an empty LMDB; fill it, or name another source", path=str(path))
            self._cursor = self._env.begin().cursor()
            self._to_first()
            for _ in range(skip % self.length):
                self._advance()
        except BaseException:
            self.close()
            raise

    def first_shape(self) -> tuple[int, ...]:
        """Shape [C,H,W] of the record that comes next, which stays next."""
        return self._image(self._datum()).shape

    def read(self, count: int) -> tuple[list[np.ndarray], np.ndarray]:
        """The next `count` images, and their labels as float32 (zeros without labels)."""
        images, labels = [], np.zeros(count, np.float32)
        for index in range(count):
            datum = self._datum()
            images.append(self._image(datum))
            if self.labels:
                if not datum.HasField("label"):
                    raise self._fault("has no label; give the data layer one top, or write labels into the LMDB")
                labels[index] = datum.label
            self._advance()
        return images, labels

    def state(self) -> dict[str, int | str]:
        return {"key": bytes(self._cursor.key()).hex()}

    def restore(self, state: dict[str, Any]) -> None:
        key = bytes.fromhex(state["key"])
        if not self._cursor.set_key(key):
            raise InputError(f"has no record '{_shown(key)}', where the snapshot stopped reading", path=str(self.path))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            _release(self._place)

    def _to_first(self) -> None:
        try:
            found = self._cursor.first()
        except lmdb.Error as error:
            raise self._fault(f"is damaged ({error})") from None
        if not found:
            raise self._fault("is damaged: it counts records but has none")

    def _advance(self) -> None:
        try:
            more = self._cursor.next()
        except lmdb.Error as error:
            raise self._fault(f"is damaged ({error})") from None
        if not more:
            self._to_first()

    def _datum(self) -> Any:
        try:
            return Datum.FromString(self._cursor.value())
        except DecodeError:
            raise self._fault("holds something else than a Datum") from None

    def _image(self, datum: Any) -> np.ndarray:
        try:
            return datum_image(datum, color=self.color)
        except InputError as error:
            raise self._fault(error.what) from None

    def _fault(self, what: str) -> InputError:
        return InputError(f"(record '{_shown(self._cursor.key())}') {what}", path=str(self.path))


def _shown(key: bytes) -> str:
    return bytes(key).decode("ascii", "backslashreplace")


def _acquire(place: Path, path: Path) -> lmdb.Environment:
    """The process's environment at `place`, opened if it is not yet."""
    with _guard:
        env, users = _open.get(place, (None, 0))
        if env is None:
            env = _open_environment(place, path)
        _open[place] = (env, users + 1)
        return env


def _release(place: Path) -> None:
    with _guard:
        env, users = _open.pop(place)
        if users > 1:
            _open[place] = (env, users - 1)
        else:
            env.close()


def _open_environment(place: Path, path: Path) -> lmdb.Environment:
    if lmdb is None:
        raise InputError("is an LMDB, and the package that reads it is not here: pip install lmdb", path=str(path))
    try:
        env = lmdb.open(str(place), subdir=place.is_dir(), readonly=True, lock=False, readahead=False)
    except lmdb.Error as error:
        raise InputError(f"cannot be opened as an LMDB ({error})", path=str(path)) from None
    file = place / "data.mdb" if place.is_dir() else place
    wanted = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    if file.stat().st_size < wanted:  # reading past the end of a mapped file would kill the process
        env.close()
        raise InputError(f"is cut short: {file.stat().st_size} bytes of {wanted}; copy it again", path=str(path))
    return env
