"""Two functions at the same time, on two cores: native searches run without the GIL (native/release_gil.h)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def run_both(first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
    """What the two return.  `second` runs in a thread that does not keep the process alive, so Ctrl-C ends both.

    They must not change the same objects: then the answers are those of one after the other.
    """
    result: list[B] = []
    error: list[BaseException] = []

    def run() -> None:
        try:
            result.append(second())
        except BaseException as raised:
            error.append(raised)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        own = first()
    except Exception:
        thread.join()  # or it would go on beside what the caller does next
        raise
    thread.join()
    if error:
        raise error[0]
    return own, result[0]
