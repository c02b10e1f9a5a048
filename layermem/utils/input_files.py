"""Reads files that a user names: regular files and pipes, up to a limit, with an InputError for everything else.

A device such as /dev/zero has no end, so none is opened.  A pipe is read to its end into a file without a name, which
is then the file.  One that has a name in a folder (mkfifo) has to begin within PIPE_SECONDS, since its writer may never
come.  One without, such as /dev/stdin or <(command), is read once, and its content is kept for whoever names it again.
"""

from __future__ import annotations

import os
import select
import stat
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from layermem.errors import InputError
from layermem.utils.files import PathName
from layermem.utils.system_faults import remedy_of
from layermem.utils.units import format_bytes

Read = Callable[..., bytes]  # a function with the arguments of read_bytes

TEXT_LIMIT_BYTES = 64 * 2**20  # of a text file; a net of 2504 layers takes 1 MiB
LINE_LIMIT_BYTES = 2**20  # of a line of a list
PIPE_LIMIT_BYTES = 2**31  # those of the largest message that protobuf reads
PIPE_SECONDS = 10.0
CHUNK_BYTES = 1 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_contents: dict[tuple[int, int], int] = {}  # of pipes without a name: descriptors of files that hold it


def exists(path: PathName) -> bool:
    """Whether a file or folder exists; False for names that the system rejects, such as one that is too long."""
    return os.path.exists(path)


def check_regular(path: PathName, *, what: str) -> int:
    """Return the size of a file that should be a `what`; InputError unless it is a regular file."""
    try:
        status = _readable(path, os.stat(path), what)
    except (OSError, ValueError) as error:
        raise unreadable(path, what, error) from None
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"is a pipe; save the {what} in a regular file", path=str(path))
    return status.st_size


def open_input(path: PathName, *, what: str) -> tuple[int, os.stat_result]:
    """Return a descriptor of a file that should be a `what`, which the caller closes, and the file's status.  Of a pipe
    they are those of a file with its content."""
    try:
        _readable(path, os.stat(path), what)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # does not block on a pipe
    except (OSError, ValueError) as error:
        raise unreadable(path, what, error) from None
    try:
        status = _readable(path, os.fstat(descriptor), what)
        if stat.S_ISFIFO(status.st_mode):
            pipe, descriptor = descriptor, _open_content(path, descriptor, status, what)
            os.close(pipe)
            status = os.fstat(descriptor)
        return descriptor, status
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, OSError):
            raise unreadable(path, what, error) from None
        raise


def _open_content(path: PathName, pipe: int, status: os.stat_result, what: str) -> int:
    """A descriptor of a file with all that a pipe brings."""
    if os.path.lexists(os.path.realpath(path)):
        return _copy_of_pipe(path, pipe, what, PIPE_SECONDS)
    key = status.st_dev, status.st_ino
    if key not in _contents:
        _contents[key] = _copy_of_pipe(path, pipe, what, None)
    return os.open(f"/dev/fd/{_contents[key]}", os.O_RDONLY | os.O_CLOEXEC)  # with a position of its own


def _copy_of_pipe(path: PathName, pipe: int, what: str, seconds: float | None) -> int:
    begun = select.poll()
    begun.register(pipe, select.POLLIN)
    if not begun.poll(None if seconds is None else 1000 * seconds):
        raise InputError("is a pipe that no program writes to; start its writer first", path=str(path))
    os.set_blocking(pipe, True)
    with tempfile.TemporaryFile() as content:
        while chunk := os.read(pipe, CHUNK_BYTES):
            content.write(chunk)
            if content.tell() > PIPE_LIMIT_BYTES:
                raise _too_large(path, PIPE_LIMIT_BYTES, "pipe")
        content.flush()
        return os.dup(content.fileno())


def _readable(path: PathName, status: os.stat_result, what: str) -> os.stat_result:
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"is a folder; give the {what} inside it", path=str(path))
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISFIFO(status.st_mode):
        raise InputError(f"is a device; save the {what} in a regular file", path=str(path))
    return status


def _too_large(path: PathName, limit: int, what: str) -> InputError:
    return InputError(
        f"is larger than {format_bytes(limit)}, the limit of a {what}; give the right file", path=str(path)
    )


def read_bytes(path: PathName, *, what: str, limit: int) -> bytes:
    """Return the content of a file that should be a `what`, of at most `limit` bytes."""
    descriptor, status = open_input(path, what=what)
    try:
        return read_whole(path, descriptor, status.st_size, what=what, limit=limit)
    finally:
        os.close(descriptor)


def read_whole(path: PathName, descriptor: int, size: int, *, what: str, limit: int) -> bytes:
    """Return all bytes of an open file of `size`; InputError if there are more than `limit`."""
    raw = b""
    if size <= limit:
        try:
            with open(descriptor, "rb", closefd=False) as handle:
                handle.seek(0)
                raw = handle.read(size + 1)
                # It grew, or has no size (/proc).
                while size < len(raw) <= limit and (more := handle.read(CHUNK_BYTES)):
                    raw += more
        except (OSError, ValueError) as error:
            raise unreadable(path, what, error) from None
    if max(size, len(raw)) > limit:
        raise _too_large(path, limit, what)
    return raw


def read_lines(
    path: PathName, *, what: str, limit: int = TEXT_LIMIT_BYTES, read: Read = read_bytes, names: bool = False
) -> list[str]:
    """Return the lines of a UTF-8 text file without their ends; `read` gets its bytes.

    names   the lines hold names of files, which may be of any bytes, and are decoded as the system's names are
    """
    raw = read(path, what=what, limit=limit)
    return [line for _, _, line in lines_of(raw, what=what, path=path, limit=TEXT_LIMIT_BYTES, names=names)]


def with_newlines(raw: bytes) -> bytes:
    """Text whose lines end in CR alone, as on old Macs, with LF instead; other text as it is."""
    return raw if b"\n" in raw else raw.replace(b"\r", b"\n")


def lines_of(
    raw: bytes, *, what: str, path: PathName, limit: int = LINE_LIMIT_BYTES, names: bool = False
) -> Iterator[tuple[int, int, str]]:
    """Yield number, start in bytes, and text without its end of each line of UTF-8 text, or of `names` as in
    read_lines; InputError for a line of more than `limit` bytes."""
    decode = os.fsdecode if names and b"\0" not in raw else bytes.decode  # a zero is in UTF-16, and in binary files
    raw = with_newlines(raw)
    start = len(BYTE_ORDER_MARK) if raw.startswith(BYTE_ORDER_MARK) else 0
    for number in count(1):
        end = raw.find(b"\n", start)
        size = (end if end >= 0 else len(raw)) - start
        if size > limit:
            fault = f"has a line of {format_bytes(size)}, above the limit of {format_bytes(limit)}; give a {what}"
            raise InputError(fault, path=str(path), line=number)
        try:
            yield number, start, decode(raw[start : end if end >= 0 else None].removesuffix(b"\r"))
        except UnicodeDecodeError:
            raise InputError(f"is not UTF-8 text; save the {what} as UTF-8", path=str(path), line=number) from None
        if end < 0:
            return
        start = end + 1


def file_beside(name: PathName, folder: Path) -> Path:
    """Return `name`, relative to the working directory, or to `folder` if it exists only there."""
    return folder / name if not exists(name) and exists(folder / name) else Path(name)


def files_below(folder: Path) -> list[Path]:
    """The files in a folder and its subfolders, sorted; InputError for a folder that cannot be read."""

    def refuse(error: OSError) -> None:
        raise unreadable(os.fspath(error.filename), "folder", error)

    paths = (Path(place, name) for place, _, names in os.walk(folder, onerror=refuse) for name in names)
    return sorted(path for path in paths if path.is_file())


def unreadable(path: PathName, what: str, error: OSError | ValueError) -> InputError:
    """Return the error for a file that should be a `what` and that the system refused to open or to read."""
    if isinstance(error, FileNotFoundError):
        of_bytes = "" if os.fsencode(path).decode(errors="ignore") == str(path) else ", and its name is not UTF-8"
        return InputError(f"no such file{of_bytes}; give an existing {what}", path=str(path))
    reason = getattr(error, "strerror", None) or str(error)
    remedy = remedy_of(error, "give another file")
    article = "an" if what.startswith(("LMDB", "HDF5", *"aeio")) else "a"
    return InputError(f"cannot be read as {article} {what}: {reason}; {remedy}", path=str(path))
