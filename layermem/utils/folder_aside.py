"""Folders that are complete or absent: they are filled under another name, and get their own at the end.

    1  fill    .NAME.PID-N.aside in the same folder      an error, Ctrl-C, SIGTERM or SIGHUP removes it
    2  rename it to NAME

A killed process leaves its aside folder, which the next one that makes NAME removes.
"""

from __future__ import annotations

import re
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from layermem.errors import InputError
from layermem.utils.files import aside_of, aside_stem, remove_orphans

ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextmanager
def folder_aside(folder: Path, *, replace: bool = False) -> Iterator[Path]:
    """A context with a new folder, which is renamed to `folder` at its end, unless an error ends it.

    InputError if `folder` exists, unless it is to be replaced, and for every error of the system.
    """
    if folder.exists() and not replace:
        raise InputError("exists already; give another name, or remove it first", path=str(folder))
    aside = aside_of(folder)
    try:
        with _signals_as_errors():
            aside.mkdir(parents=True)
            remove_orphans(folder.parent, re.escape(aside_stem(folder.name)))
            yield aside
            if replace:
                shutil.rmtree(folder, ignore_errors=True)
            aside.rename(folder)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}; use another path", path=str(folder)) from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def _signals_as_errors() -> Iterator[None]:
    """Let signals that would end the process end it by an exception.  It works in the main thread only."""
    of_main = threading.current_thread() is threading.main_thread()
    numbers = [each for each in ENDING if of_main and signal.getsignal(each) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
