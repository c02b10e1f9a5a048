"""Files that stay open from their check to their last read, so that the checked content is the content read.

A file that is removed, renamed or replaced meanwhile stays readable through its descriptor.  A change of its
content in place is an InputError: parts of two contents never mix.  Numbers are read when they are needed, so an open
file takes no memory.
"""

from __future__ import annotations

import io
import os
import weakref
from typing import BinaryIO

from layermem.errors import InputError
from layermem.utils.files import PathName
from layermem.utils.input_files import open_input, read_whole, unreadable
from layermem.utils.system_faults import working_folder

Identity = tuple[int, int, int, int]


def identity(status: os.stat_result) -> Identity:
    """Values that differ between a file and any file written later at its path, or changes to it."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class OpenFile:
    """The file that `path` names now; it stays open until nothing refers to the object any more.

    what   the expected kind of file, for errors
    """

    def __init__(self, path: PathName, *, what: str):
        self.path, self.what = os.fspath(path), what
        self.descriptor, status = open_input(path, what=what)
        weakref.finalize(self, os.close, self.descriptor).atexit = False
        self.size, self.identity = status.st_size, identity(status)

    def check_unchanged(self) -> None:
        """InputError if the content has changed since the file was opened."""
        if identity(os.fstat(self.descriptor)) != self.identity:
            raise InputError("has changed since it was opened; restore it, and start again", path=self.path)

    def fill(self, buffer: memoryview, start: int) -> int:
        """Read the bytes from `start` on into `buffer` and return their number, which is smaller at the end of the
        file."""
        done = 0
        try:
            while done < len(buffer) and (count := os.preadv(self.descriptor, [buffer[done:]], start + done)):
                done += count
        except OSError as error:
            raise unreadable(self.path, self.what, error) from None
        return done

    def read(self, start: int, stop: int) -> bytes:
        """The bytes at [start, stop), fewer at the end of the file."""
        raw = bytearray(max(0, stop - start))
        return bytes(raw[: self.fill(memoryview(raw), start)])

    def content(self, limit: int) -> bytes:
        """Read all bytes; InputError if there are more than `limit`."""
        raw = read_whole(self.path, self.descriptor, self.size, what=self.what, limit=limit)
        self.check_unchanged()
        return raw

    def reader(self) -> BinaryIO:
        """The content as a stream with a position of its own."""
        return io.BufferedReader(_FileReader(self))


class Files:
    """The files that a net names.  Each is opened once, and the net keeps the content of that moment.  A database,
    which is not held open, is known by its identity and must stay the same.  So a net that runs in another working
    folder than it was made in does not read other files there."""

    def __init__(self) -> None:
        self._folder = working_folder() or os.curdir  # without one, only absolute names can be opened
        self._open: dict[str, OpenFile] = {}
        self._identities: dict[str, tuple[int, ...]] = {}

    def __getstate__(self) -> dict[str, object]:
        """What another process gets, which opens the files itself."""
        return {**vars(self), "_open": {}}

    def read_bytes(self, path: PathName, *, what: str, limit: int) -> bytes:
        """Read a file as input_files.read_bytes() does, with the content that it had when it was first opened."""
        name = self._absolute(path)
        if name not in self._open:
            self._open[name] = OpenFile(path, what=what)
        return self._open[name].content(limit)

    def check_same(self, path: PathName, identity: tuple[int, ...]) -> None:
        """Raise InputError unless `path` still names the file of the first call."""
        if self._identities.setdefault(self._absolute(path), identity) != identity:
            raise InputError("has changed since the net was made; restore it, or make the net again", path=str(path))

    def _absolute(self, path: PathName) -> str:
        """The file that `path` named when the net was made."""
        return os.path.normpath(os.path.join(self._folder, path))


class _FileReader(io.RawIOBase):
    """Reads an OpenFile from a position; several streams of one file do not disturb each other."""

    def __init__(self, file: OpenFile):
        self._file, self._position = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count = self._file.fill(memoryview(buffer).cast("B"), self._position)
        self._position += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._file.size}[whence]
        if base + offset < 0:
            raise ValueError("a position before the start of the file")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position
