"""The databases of one kind that are open in this process: readers of a file share one, which the last one closes."""

from __future__ import annotations

import os
import threading
from typing import Generic, Protocol, TypeVar

FileId = tuple[int, ...]  # another one for a file that is made in its place later


class Handle(Protocol):
    """An open database of a library."""

    def close(self) -> None: ...


H = TypeVar("H", bound=Handle)


class OpenDatabases(Generic[H]):
    """`lock` is held from get() to add(), so that no file is opened twice."""

    def __init__(self) -> None:
        self._users: dict[FileId, tuple[H, int]] = {}
        self._renew_lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew_lock)

    def _renew_lock(self) -> None:
        self.lock = threading.Lock()  # in a copy of the process: a thread of the other one may have held it

    def get(self, key: FileId | None) -> H | None:
        return self._users[key][0] if key in self._users else None

    @property
    def handles(self) -> list[H]:
        return [handle for handle, _ in self._users.values()]

    def add(self, key: FileId, handle: H) -> None:
        """Count one more user of `handle`."""
        self._users[key] = handle, self._users.get(key, (handle, 0))[1] + 1

    def release(self, key: FileId) -> None:
        """Count one user less; the last one closes the database."""
        with self.lock:
            handle, users = self._users.pop(key)
            if users > 1:
                self._users[key] = handle, users - 1
            else:
                handle.close()
