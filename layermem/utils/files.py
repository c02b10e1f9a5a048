"""Atomic writes: after a crash at any point, a file is complete or absent.

    1  write  .NAME.PID-N.aside in the same folder     a crash leaves NAME as it was (a long NAME is cut)
    2  sync   its bytes to the disk
    3  rename it to NAME                               readers see the old file or the new one
    4  sync   the folder, so that the rename is durable

A pipe or a device is written as it is, and so is the file that standard output goes to.

A killed process leaves its aside file; the next write of the same NAME removes it, and remove_orphans() removes those
of many names.

Files of one set (write_together) are all written and synced before the first of them is renamed.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from errno import EISDIR, EPERM
from pathlib import Path
from typing import BinaryIO

from layermem.errors import InputError
from layermem.utils.steps import report_step
from layermem.utils.units import format_bytes

PathName = str | os.PathLike[str]
Content = bytes | Callable[[BinaryIO], object]  # the bytes of a file, or a function that writes them to the open file

NAME_LIMIT_BYTES = 255  # of a file name
AFFIXES = ". .4194304-999999.aside"  # what surrounds the stem of an aside file, at its longest
_count = itertools.count()  # distinguishes aside files of threads that write the same name


def write_atomically(path: PathName, content: Content) -> None:
    """Write `content` to `path`: bytes, or a function that writes them to the open file (readable and seekable).

    InputError if the folder does not exist or is not writable; then, and on any error in `content`, `path` keeps its
    old content.  A symbolic link is followed, and its target replaced; pipes and devices are written, not replaced.
    """
    write_together([(path, content)])


def check_path(path: object, what: str) -> PathName:
    """Return `path`; InputError unless it is a path of a `what`.  (An integer would be taken for an open file.)"""
    if not isinstance(path, str | os.PathLike) or "\0" in str(path):
        raise InputError(f"{path!r} is no path of a {what}; give a string or a pathlib.Path, without a zero byte")
    return path


def check_folder(path: PathName | None) -> None:
    """Raise InputError, before any work, if the folder of a file to be written does not exist."""
    folder = Path(os.path.realpath(path)).parent if path else None
    if folder is not None and not folder.is_dir():
        raise InputError(f"cannot be written: there is no folder '{folder}'; create it", path=str(path))


def check_output(*paths: PathName | None) -> None:
    """Raise InputError, before any work, if write_atomically() could not write one of `paths`: its folder does not
    exist or takes no files, or a folder or a file that cannot be replaced is in the way; or if two are one file."""
    for output in [_output_of(path) for path in paths if path]:
        with _named(output):
            output.check()
    check_distinct(*paths)


def check_distinct(*paths: PathName | None) -> None:
    """Raise InputError, before any work, if two outputs are one file."""
    targets: set[Path] = set()
    for output in [_output_of(path) for path in paths if path]:
        if isinstance(output, _Replacement):
            if output.target in targets:
                raise InputError("is given for two outputs; give each a name of its own", path=str(output.path))
            targets.add(output.target)


def blocked_at(folder: PathName) -> Path | None:
    """The folder, or the nearest one around it that exists, if no file can be made there; None if one can."""
    nearest = Path(folder)
    while not os.path.exists(nearest):
        nearest = nearest.parent
    return None if nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK) else nearest


KNOWN_ENDINGS = (
    ".onnx",
    ".npz",
    ".safetensors",
    ".caffemodel",
    ".solverstate",
    ".prototxt",
    ".binaryproto",
    ".h5",
    ".json",
    ".jsonl",
    ".csv",
    ".html",
    ".png",
    ".svg",
    ".pdf",
    ".jpg",
    ".jpeg",
)


def check_name(path: PathName | None, own: Sequence[str], what: str) -> None:
    """Raise InputError, before any work, for a file named like another kind; names of no known kind are allowed.

    own    the known endings of `what` ("a plan"); errors advise the first one
    """
    others = tuple(ending for ending in KNOWN_ENDINGS if ending not in own)
    if path is not None and os.fspath(path).lower().endswith(others):
        advice = f"use a name that ends in {own[0]}" if own else "use a name without that ending"
        raise InputError(f"is not {what} by its name; {advice}", path=str(path))


WEIGHT_ENDINGS = (".caffemodel", ".h5", ".safetensors", ".npz")  # of names of weight files, each with its format


def check_ending(path: PathName | None, endings: Sequence[str], what: str) -> None:
    """Raise InputError, before any work, if the name of a file does not end like a `what` ("a plan")."""
    if path is not None and not os.fspath(path).lower().endswith(tuple(endings)):
        known = " or ".join([", ".join(endings[:-1]), endings[-1]] if len(endings) > 1 else endings)
        raise InputError(f"is not {what} by its name; use a name that ends in {known}", path=str(path))


def write_together(files: Sequence[tuple[PathName, Content]]) -> None:
    """Write several files atomically, their contents in this order; on an error none of them changes.

    The last file is absent while the others are replaced: if it exists, so do the files that belong to it.  A pipe, a
    device and the file of standard output cannot be replaced: they get all bytes at once, when the others are complete.
    """
    outputs: list[_Replacement | _Stream] = []
    try:
        for path, content in files:
            check_path(path, "file")
            output = _output_of(path)
            outputs.append(output)
            with _named(output):
                output.prepare(content)
        if len(outputs) > 1:
            with _named(outputs[-1]):
                outputs[-1].withdraw()
        for output in outputs:
            with _named(output):
                nbytes = output.publish()
            report_step("wrote %s: %s", output.path, format_bytes(nbytes))
    except BaseException:
        for output in outputs:
            output.discard()
        raise


def _output_of(path: PathName) -> _Replacement | _Stream:
    """How `path` is written: of a regular file the name is replaced, but not if standard output or another descriptor
    that `path` names, as /dev/fd/3 does, is open on it: what else is written there would be lost."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return _Replacement(path)
    except OSError as error:
        raise _unwritable(path, error) from None
    named = re.fullmatch(rf"/(?:dev|proc/(?:self|{os.getpid()}))/fd/(\d+)", os.path.abspath(os.fsdecode(path)))
    for number in [int(named[1])] if named else [1, 2]:
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(number), status):
                return _Stream(path, number)
    is_replaced = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    return _Replacement(path) if is_replaced else _Stream(path)


class _Replacement:
    """A new file, complete under another name in the same folder before it gets its own."""

    def __init__(self, path: PathName):
        self.path, self.target = path, Path(os.path.realpath(path))
        self._aside = aside_of(self.target)

    def check(self) -> None:
        """Raise the error of a folder or a file in the way."""
        check_folder(self.path)
        folder = self.target.parent
        self._refuse_folder()
        if blocked_at(folder) is not None:
            what = f"cannot be written: '{folder}' is not a writable folder; use another path"
            raise InputError(what, path=str(self.path))
        status, own = folder.stat(), os.geteuid()
        is_of_owner = status.st_mode & stat.S_ISVTX and own not in (0, status.st_uid)
        if is_of_owner and self.target.exists() and self.target.stat().st_uid != own:
            raise PermissionError(EPERM, os.strerror(EPERM))

    def _refuse_folder(self) -> None:
        if self.target.is_dir():
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR))

    def prepare(self, content: Content) -> None:
        remove_orphans(self.target.parent, re.escape(aside_stem(self.target.name)))
        self._refuse_folder()  # before any content is written
        with open(self._aside, "x+b") as handle:
            _write(handle, content)
            handle.flush()
            os.fsync(handle.fileno())

    def withdraw(self) -> None:
        """Remove the old file."""
        self.target.unlink(missing_ok=True)
        _sync_folder(self.target.parent)

    def publish(self) -> int:
        """Give the file its name, and return its bytes."""
        nbytes = os.path.getsize(self._aside)
        os.replace(self._aside, self.target)
        _sync_folder(self.target.parent)
        return nbytes

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self._aside.unlink()


class _Stream:
    """A pipe or a device, or what a descriptor of this process is open on.  A reader that has gone takes no bytes."""

    def __init__(self, path: PathName, descriptor: int | None = None):
        self.path, self._descriptor, self._content = path, descriptor, io.BytesIO()

    def check(self) -> None:
        pass

    def prepare(self, content: Content) -> None:
        _write(self._content, content)

    def withdraw(self) -> None:
        pass

    def publish(self) -> int:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
        opened = self.path if self._descriptor is None else os.dup(self._descriptor)
        with contextlib.suppress(BrokenPipeError), open(opened, "wb") as handle:
            handle.write(self._content.getbuffer())
        return self._content.getbuffer().nbytes

    def discard(self) -> None:
        pass


def _write(handle: BinaryIO, content: Content) -> None:
    if isinstance(content, bytes):
        handle.write(content)
    else:
        content(handle)


@contextlib.contextmanager
def _named(output: _Replacement | _Stream) -> Iterator[None]:
    """Turn any OSError into an InputError with the path."""
    try:
        yield
    except OSError as error:
        if isinstance(output, _Replacement):
            check_folder(output.path)
        raise _unwritable(output.path, error) from None


def _unwritable(path: PathName, error: OSError) -> InputError:
    return InputError(f"cannot be written: {error.strerror or error}; use another path", path=str(path))


def _sync_folder(folder: Path) -> None:
    """Sync a folder, on systems where folders can be opened and synced."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def aside_of(target: Path) -> Path:
    """Return the name that a file or a folder has until it is complete."""
    return target.with_name(f".{aside_stem(target.name)}.{os.getpid()}-{next(_count)}.aside")


def aside_stem(name: str) -> str:
    """The part of `name` that the names of its aside files hold: its first bytes, if all of them would be too many."""
    return os.fsdecode(os.fsencode(name)[: NAME_LIMIT_BYTES - len(AFFIXES)])


def remove_orphans(folder: Path, names: str) -> None:
    """Delete the aside files and folders of killed processes in `folder` whose stems match the pattern `names`."""
    aside = re.compile(rf"\.(?:{names})\.(?P<pid>\d+)-\d+\.aside", re.DOTALL)
    for entry in os.listdir(folder):
        match = aside.fullmatch(entry)
        if match and not _is_alive(int(match["pid"])):
            with contextlib.suppress(OSError):
                os.unlink(folder / entry)
            shutil.rmtree(folder / entry, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    """Whether the process is alive; an unknown answer counts as alive.

    A process on another machine with the same folder may look dead; its rename then fails with an error.
    """
    if os.name != "posix":  # signal 0 does not probe there
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
