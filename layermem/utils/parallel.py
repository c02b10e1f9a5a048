"""Two functions at the same time, on two cores.

run_both      in two threads: native searches run without the GIL (native/release_gil.h), Python does not
map_both      the same for one function and some items
begin_thread  in a thread, for a result that is needed later
begin_beside  in a copy of the process, for work in Python whose result is small
map_beside    one function and some items, in this process and a copy of it
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
    """What the two return.  `second` runs in a thread that does not keep the process alive, so Ctrl-C ends both.

    They must not change the same objects: then the answers are those of one after the other.
    """
    wait = begin_thread(second)
    try:
        own = first()
    except Exception:
        with suppress(BaseException):
            wait()  # or it would go on beside what the caller does next
        raise
    return own, wait()


def map_both(function: Callable[[A], B], items: Iterable[A]) -> list[B]:
    """What the function returns for each item, in the order of the items; each thread takes the next one that is left.
    One call must not change what another one reads."""
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
    """Begin a function in a thread that does not keep the process alive; what is returned waits for its result."""
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
    """Begin a function in a copy of this process, which ends with it; what is returned waits for its pickled result.

    It must not need other threads of this process, nor what they hold.  Where there are no copies, or the copy fails,
    the function runs here once its result is asked for: then errors are raised there.
    """
    if not hasattr(os, "fork"):
        return function
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads that a copy does not have: see above
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
    """What the function returns for each item, in the order of the items; this process and a copy of it take the next
    one that is left.  What begin_beside() says of its function holds for this one."""
    turns, results = _Turns(len(items)), dict[int, B]()

    def run() -> dict[int, B]:
        return {number: function(items[number]) for number in turns}

    wait = begin_beside(run) if len(items) > 1 else dict[int, B]
    try:
        results |= run()
        results |= wait()
    except BaseException:
        list(turns)  # the copy has none left
        with suppress(BaseException):
            wait()
        raise
    finally:
        turns.close()
    return [results[number] if number in results else function(item) for number, item in enumerate(items)]


class _Turns:
    """Numbers from 0 on that this process and its copies share: each of them goes to one process, once."""

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
    """Write the result, or nothing if that fails, and end this process without what ends its original."""
    try:
        pickled = pickle.dumps((function(),))
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(pickled)
    finally:
        os._exit(0)
