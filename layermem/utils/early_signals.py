"""Signals that arrive before a command can act on them: while modules are imported, and while a training is planned."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130  # exit code
AWAITED = tuple(getattr(signal, name) for name in ("SIGHUP", "SIGUSR1") if hasattr(signal, name))  # by a training

_is_waiting = False


@contextmanager
def at_start() -> Iterator[None]:
    """A context for imports.  In the main thread of the `layermem` program, Ctrl-C ends it at once, with one line: an
    exception within an import may come out as another one.  The signals that a training obeys wait for deliver()."""
    global _is_waiting
    name = sys.argv[0] if sys.argv else ""
    is_program = os.path.basename(name) == "layermem" or name.endswith(os.path.join("layermem", "__main__.py"))
    if not is_program or threading.current_thread() is not threading.main_thread():
        yield
        return
    if AWAITED and (sys.argv[1:2] == ["train"] or (sys.argv[1:2] == ["caffe"] and "train" in sys.argv)):
        signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
        _is_waiting = True
    previous = signal.getsignal(signal.SIGINT)
    if previous is signal.default_int_handler:  # else it is ignored, as by nohup
        signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def while_waiting() -> Iterator[None]:
    """A context for a call that waits for other processes and holds the interpreter, so that no handler of Python runs:
    Ctrl-C kills the process."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"layermem: interrupted\n")
    os._exit(INTERRUPTED)


def deliver() -> None:
    """Let the signals that wait arrive: their handlers are installed, or another program has them.  Outside a training
    of the `layermem` program it does nothing."""
    global _is_waiting
    if _is_waiting:
        _is_waiting = False
        signal.pthread_sigmask(signal.SIG_UNBLOCK, AWAITED)
