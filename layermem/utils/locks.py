"""Locks by which a run knows that no other run writes to its files.

The system releases them when the process ends, however it ends.  File systems without locks have none.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def lock(descriptor: int) -> bool:
    """Lock an open file until it is closed, or the process ends; False if it is locked already."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """A context in which the file `path`, which is there until its end, is locked; yields False if another has it.

    Where the file cannot be made or opened there is no lock.  NFS locks only what is open for writing.
    """
    is_mine, file = True, None
    with suppress(OSError):
        while file is None:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            is_mine = lock(file)
            if is_mine and not _is_at(path, file):  # whoever had it has removed it
                os.close(file)
                file = None
    try:
        yield is_mine
    finally:
        if file is not None:
            with suppress(OSError):
                if is_mine and _is_at(path, file):
                    os.unlink(path)
            os.close(file)


def _is_at(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return False
