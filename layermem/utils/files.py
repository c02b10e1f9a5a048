"""A file that is complete or absent, whatever happens while it is written.

    1  write  .NAME.PID-N.aside in the same folder     a crash leaves NAME as it was
    2  sync   its bytes to the disk
    3  rename it to NAME                               readers see the old file or the new, never a part
    4  sync   the folder, so that the rename lasts too

A killed process leaves its aside file behind; the next write of the same NAME removes it.

Files that belong together (write_together) are all written and synced before the first of them is renamed.
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

Name = str | os.PathLike[str]
Content = bytes | Callable[[BinaryIO], object]  # what a file shall hold, or what writes it to the open file

_count = itertools.count()  # two threads that write one name do not share an aside file


def write_atomically(path: Name, content: Content) -> None:
    """Make `path` hold `content`: bytes, or a function that writes them to the open file (readable and seekable).

    InputError if the folder does not exist or cannot take the file; then, and on any error of `content`, `path` is
    what it was.  A symbolic link keeps pointing where it did, and the file there is replaced.
    """
    write_together([(path, content)])


def write_together(files: Sequence[tuple[Name, Content]]) -> None:
    """The same for several files, whose contents are made in this order; all are written, or none is touched.

    While the first ones change, the last one is absent: who finds it finds those that belong to it.
    """
    asides: list[tuple[Path, Path]] = []
    try:
        for path, content in files:
            target = Path(os.path.realpath(path))
            aside = target.with_name(f".{target.name}.{os.getpid()}-{next(_count)}.aside")
            asides.append((aside, target))
            with _named(path, target):
                _remove_orphans(target)
                if target.is_dir():  # which the rename would say too late
                    raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
                _write_synced(aside, content)
        if len(asides) > 1:
            with _named(files[-1][0], asides[-1][1]):
                asides[-1][1].unlink(missing_ok=True)
                _sync_folder(asides[-1][1].parent)
        for (path, _), (aside, target) in zip(files, asides):
            with _named(path, target):
                os.replace(aside, target)
                _sync_folder(target.parent)
    except BaseException:
        for aside, _ in asides:
            with contextlib.suppress(OSError):
                aside.unlink()
        raise


@contextlib.contextmanager
def _named(path: Name, target: Path) -> Iterator[None]:
    """Whatever the system refuses is an InputError that names the file."""
    try:
        yield
    except OSError as error:
        if not target.parent.is_dir():
            raise InputError(f"cannot be written: there is no folder '{target.parent}'", path=str(path)) from None
        raise InputError(f"cannot be written: {error.strerror or error}", path=str(path)) from None


def _write_synced(aside: Path, content: Content) -> None:
    with open(aside, "x+b") as handle:
        if isinstance(content, bytes):
            handle.write(content)
        else:
            content(handle)
        handle.flush()
        os.fsync(handle.fileno())


def _sync_folder(folder: Path) -> None:
    """Folders cannot be opened or synced everywhere; where they cannot, the rename is as durable as it gets."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _remove_orphans(target: Path) -> None:
    """Delete what killed processes left of earlier writes to `target`."""
    name = re.compile(re.escape(f".{target.name}.") + r"(\d+)-\d+\.aside")
    for entry in os.listdir(target.parent):
        match = name.fullmatch(entry)
        if match and not _runs(int(match[1])):
            with contextlib.suppress(OSError):
                os.unlink(target.parent / entry)


def _runs(pid: int) -> bool:
    """Whether the process is alive; an unknown answer counts as alive.

    A live one of another machine that shares the folder may look dead: it then fails to rename and says so.
    """
    if os.name != "posix":  # signal 0 is no question there
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
