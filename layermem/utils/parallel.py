"""Runs two functions at the same time, on two cores.

run_both      runs them in two threads: native searches run without the GIL (native/release_gil.h), Python does not
map_both      applies one function to items, in two threads
begin_thread  starts a function in a thread, for a result that is needed later
begin_beside  starts it in a copy of the process, for work in Python whose result is small
map_beside    applies one function to items, in this process and a copy of it
"""

from __future__ import annotations

import os
import pickle
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def run_both(first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
    """Return both results.  `second` runs in a thread that does not keep the process alive, so Ctrl-C ends both.

    The functions must not change the same objects; the results are then those of calls in sequence.
    """
    wait = begin_thread(second)
    try:
        own = first()
    except Exception:
        with suppress(BaseException):
            wait()  # otherwise it would continue while the caller proceeds
        raise
    return own, wait()


def map_both(function: Callable[[A], B], items: Iterable[A]) -> list[B]:
    """Return the function's results in the order of the items; each thread takes the next remaining item.
    A call must not change data that another call reads."""
    waiting = list(enumerate(items))[::-1]
    results: dict[int, B] = {}

    def run() -> None:
        while waiting:
            try:
                number, item = waiting.pop()
            except IndexError:  # the other thread took the last one
                return
            results[number] = function(item)

    if len(waiting) > 1:
        run_both(run, run)
    else:
        run()
    return [results[number] for number in sorted(results)]


def begin_thread(function: Callable[[], A]) -> Callable[[], A]:
    """Start a function in a thread that does not keep the process alive; return a function that waits for its
    result."""
    result: list[A] = []
    error: list[BaseException] = []

    def run() -> None:
        try:
            result.append(function())
        except BaseException as raised:
            error.append(raised)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def wait() -> A:
        thread.join()
        if error:
            raise error[0]
        return result[0]

    return wait


def begin_beside(function: Callable[[], A]) -> Callable[[], A]:
    """Start a function in a copy of this process, which ends with it; return a function that waits for the result.

    The result is pickled.  The function must not need other threads of this process or their locks.  Without a copy, or
    if the copy fails, the function runs here when its result is requested, and raises its errors there.
    """
    if not hasattr(os, "fork"):
        return function
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about threads, which the copy lacks: see above
        child = os.fork()
    if not child:
        _write_result(function, writer)
    os.close(writer)

    def result() -> A:
        with os.fdopen(reader, "rb") as pipe:
            pickled = pipe.read()
        os.waitpid(child, 0)
        return pickle.loads(pickled)[0] if pickled else function()

    return result


def map_beside(function: Callable[[A], B], items: Sequence[A]) -> list[B]:
    """Return the function's results in the order of the items; this process and a copy of it each take the next
    remaining item.  The function has the limits of one for begin_beside()."""
    turns, results = _Turns(len(items)), dict[int, B]()

    def run() -> dict[int, B]:
        return {number: function(items[number]) for number in turns}

    wait = begin_beside(run) if len(items) > 1 else dict[int, B]
    try:
        results |= run()
        results |= wait()
    except BaseException:
        list(turns)  # takes all remaining turns from the copy
        with suppress(BaseException):
            wait()
        raise
    finally:
        turns.close()
    return [results[number] if number in results else function(item) for number, item in enumerate(items)]


class _Turns:
    """Numbers from 0 on, shared by this process and its copies: each number goes to one process, once."""

    def __init__(self, count: int) -> None:
        self._reader, writer = os.pipe()
        os.write(writer, bytes(range(count)))
        os.close(writer)

    def __iter__(self) -> Iterator[int]:
        while number := os.read(self._reader, 1):
            yield number[0]

    def close(self) -> None:
        os.close(self._reader)


def _write_result(function: Callable[[], object], writer: int) -> None:
    """Write the result, or nothing if that fails, and end this process without the exit handlers of its original."""
    try:
        pickled = pickle.dumps((function(),))
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(pickled)
    finally:
        os._exit(0)
