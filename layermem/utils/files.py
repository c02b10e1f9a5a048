"""Atomic writes: after a crash at any point, a file is complete or absent.

    1  write  .NAME.PID-N.aside in the same folder     a crash leaves NAME as it was
    2  sync   its bytes to the disk
    3  rename it to NAME                               readers see the old file or the new one
    4  sync   the folder, so that the rename is durable

A killed process leaves its aside file; the next write of the same NAME removes it, and remove_orphans() removes those
of many names.

Files of one set (write_together) are all written and synced before the first of them is renamed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from errno import EISDIR
from pathlib import Path
from typing import BinaryIO

from layermem.errors import InputError
from layermem.utils.steps import report_step
from layermem.utils.units import format_bytes

PathName = str | os.PathLike[str]
Content = bytes | Callable[[BinaryIO], object]  # the bytes of a file, or a function that writes them to the open file

_count = itertools.count()  # distinguishes aside files of threads that write the same name


def write_atomically(path: PathName, content: Content) -> None:
    """Write `content` to `path`: bytes, or a function that writes them to the open file (readable and seekable).

    InputError if the folder does not exist or is not writable; then, and on any error in `content`, `path` keeps its
    old content.  A symbolic link is followed, and its target replaced.
    """
    write_together([(path, content)])


def check_path(path: object, what: str) -> PathName:
    """Return `path`; InputError unless it is a path of a `what`.  (An integer would be taken for an open file.)"""
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"{path!r} is no path of a {what}; give a string or a pathlib.Path")
    return path


def check_folder(path: PathName | None) -> None:
    """Raise InputError, before any work, if the folder of a file to be written does not exist."""
    folder = Path(os.path.realpath(path)).parent if path else None
    if folder is not None and not folder.is_dir():
        raise InputError(f"cannot be written: there is no folder '{folder}'; create it", path=str(path))


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


def check_ending(path: PathName | None, endings: Sequence[str], what: str) -> None:
    """Raise InputError, before any work, if the name of a file does not end like a `what` ("a plan")."""
    if path is not None and not os.fspath(path).lower().endswith(tuple(endings)):
        known = " or ".join([", ".join(endings[:-1]), endings[-1]] if len(endings) > 1 else endings)
        raise InputError(f"is not {what} by its name; use a name that ends in {known}", path=str(path))


def write_together(files: Sequence[tuple[PathName, Content]]) -> None:
    """Write several files atomically, their contents in this order; on an error none of them changes.

    The last file is absent while the others are replaced: if it exists, so do the files that belong to it.
    """
    asides: list[tuple[Path, Path]] = []
    try:
        for path, content in files:
            target = Path(os.path.realpath(path))
            aside = target.with_name(f".{target.name}.{os.getpid()}-{next(_count)}.aside")
            asides.append((aside, target))
            with _named(path, target):
                remove_orphans(target.parent, re.escape(target.name))
                if target.is_dir():  # before any content is written
                    raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
                _write_synced(aside, content)
        if len(asides) > 1:
            with _named(files[-1][0], asides[-1][1]):
                asides[-1][1].unlink(missing_ok=True)
                _sync_folder(asides[-1][1].parent)
        for (path, _), (aside, target) in zip(files, asides):
            with _named(path, target):
                nbytes = os.path.getsize(aside)
                os.replace(aside, target)
                _sync_folder(target.parent)
            report_step("wrote %s: %s", path, format_bytes(nbytes))
    except BaseException:
        for aside, _ in asides:
            with contextlib.suppress(OSError):
                aside.unlink()
        raise


@contextlib.contextmanager
def _named(path: PathName, target: Path) -> Iterator[None]:
    """Turn any OSError into an InputError with the path."""
    try:
        yield
    except OSError as error:
        if not target.parent.is_dir():
            what = f"cannot be written: there is no folder '{target.parent}'; create it"
            raise InputError(what, path=str(path)) from None
        raise InputError(f"cannot be written: {error.strerror or error}; use another path", path=str(path)) from None


def _write_synced(aside: Path, content: Content) -> None:
    with open(aside, "x+b") as handle:
        if isinstance(content, bytes):
            handle.write(content)
        else:
            content(handle)
        handle.flush()
        os.fsync(handle.fileno())


def _sync_folder(folder: Path) -> None:
    """Sync a folder, on systems where folders can be opened and synced."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove_orphans(folder: Path, names: str) -> None:
    """Delete the aside files that killed processes left for files in `folder` whose names match the pattern `names`."""
    aside = re.compile(rf"\.(?:{names})\.(?P<pid>\d+)-\d+\.aside", re.DOTALL)
    for entry in os.listdir(folder):
        match = aside.fullmatch(entry)
        if match and not _is_alive(int(match["pid"])):
            with contextlib.suppress(OSError):
                os.unlink(folder / entry)


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
