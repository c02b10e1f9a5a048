"""Changes a file when a command opens it for the k-th time, and checks the command's report.

    with Openings(folder) as openings: run()             every opening of a file below the folder, in order
    with Openings(folder, "w.caffemodel", 2, remove):    the second opening of that file finds it removed

Python reports the openings of files to audit hooks, whoever opens them; LMDB and LevelDB open theirs by themselves.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import lmdb
import pytest

Change = Callable[[Path], None]


def remove(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])


def make_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def write_garbage(path: Path) -> None:
    path.write_bytes(bytes(range(1, 256)) * 8)


CHANGES: list[Change] = [remove, empty, cut, make_a_folder, write_garbage]


class Openings:
    """The openings of files below `folder` while this is active; the one of `name` that is number `when` finds it
    after `change`.  Names are relative to the folder."""

    def __init__(self, folder: Path, name: str = "", when: int = 0, change: Change = remove):
        self.folder, self.name, self.when, self.change = folder, name, when, change
        self.opened: list[tuple[str, int]] = []  # the name, and how often it was opened so far

    def note(self, path: str | Path) -> None:
        """A file is about to be opened."""
        global active
        whole = Path(os.path.abspath(path))
        if not whole.is_relative_to(self.folder) or not whole.is_file():
            return
        name = str(whole.relative_to(self.folder))
        count = 1 + sum(each == name for each, _ in self.opened)
        self.opened.append((name, count))
        if (name, count) == (self.name, self.when):
            active = None
            self.change(whole)
            active = self

    def __enter__(self) -> Openings:
        global active
        self._patch = pytest.MonkeyPatch()
        opened = lmdb.open

        def open_lmdb(path: str | bytes, **options: Any) -> Any:
            if active is not None and options.get("readonly"):
                active.note(Path(os.fsdecode(path)) / "data.mdb")
            return opened(path, **options)

        self._patch.setattr(lmdb, "open", open_lmdb)
        active = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global active
        active = None
        self._patch.undo()


active: Openings | None = None
READING = ("r", "rb", "rt")


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and active is not None:
        path, mode, flags = arguments
        is_read = mode in READING or (mode is None and not flags & 3)  # of os.open: O_WRONLY and O_RDWR are 1 and 2
        if isinstance(path, str | bytes | Path) and is_read:
            active.note(path.decode() if isinstance(path, bytes) else path)


sys.addaudithook(_hook)


def fresh_copy(source: Path, folder: Path) -> Path:
    """The folder with the files of `source` and no others."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder, symlinks=True)
    return folder
