"""Applies one function to many items in parallel processes, each of which takes one item at a time; and lets a process
end with its parent.

for module, seconds in on_all_cores(compile_module, ["pooling", "softmax"]): ...

Unlike multiprocessing, the processes do not import the caller's __main__, which may be a script that would repeat its
work.  Ctrl-C reaches only this process, which ends the others whenever it leaves the loop; if it is killed, they end
after their item.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from selectors import EVENT_READ, DefaultSelector
from typing import IO, Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")

PR_SET_PDEATHSIG = 1
_prctl = getattr(ctypes.CDLL(None), "prctl", None) if os.name == "posix" else None  # on Linux
START = "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); from {0} import serve; serve()"


def core_count() -> int:
    """Number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ends_with_this_process(number: int) -> Callable[[], None]:
    """Return a `preexec_fn` for subprocess: the kernel of Linux sends the new process the signal `number` when this
    process is gone, even by SIGKILL."""
    return partial(_end_with, os.getpid(), number)


def _end_with(parent: int, number: int) -> None:
    if _prctl is not None:
        _prctl(PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # the parent has already ended
            os._exit(1)


def on_all_cores(function: Callable[[A], B], items: Sequence[A]) -> Iterator[tuple[A, B]]:
    """Yield each item with its result, in the order of completion; items start in the order of `items`.

    Other processes must be able to import `function` by its name, or it is a partial of such a function.  Its errors
    are raised here.  If a process ends without an answer, the function is called here.
    """
    waiting = list(items)[::-1]
    with ExitStack() as running, DefaultSelector() as answers:
        for _ in range(min(core_count(), len(waiting))):
            started = _Worker(function)
            running.callback(started.end)
            answers.register(started.output, EVENT_READ, started)
            started.begin(waiting.pop())
        while answers.get_map():
            for key, _ in answers.select():
                worker: _Worker = key.data
                item = worker.item
                result, is_alive = worker.result()
                if waiting and is_alive:
                    worker.begin(waiting.pop())
                else:
                    answers.unregister(worker.output)
                yield item, result
    while waiting:  # every process ended early
        item = waiting.pop()
        yield item, function(item)


class _Worker:
    """A process that calls `function` for one item after the other."""

    def __init__(self, function: Callable[[Any], Any]):
        self.function = function
        self.process = subprocess.Popen(
            [sys.executable, "-c", START.format(__name__)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.input: IO[bytes] = self.process.stdin
        self.output: IO[bytes] = self.process.stdout
        self.item: Any = None
        self._send(sys.path)
        self._send(function)

    def begin(self, item: Any) -> None:
        self.item = item
        self._send(item)

    def result(self) -> tuple[Any, bool]:
        """Return the result of the item, and whether the process can take another one."""
        try:
            result, error = pickle.load(self.output)
        except (EOFError, pickle.UnpicklingError):
            return self.function(self.item), False
        if error is not None:
            raise error
        return result, True

    def end(self) -> None:
        with suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)  # and the processes that it started
        with suppress(OSError):
            self.input.close()
        self.output.close()
        self.process.wait()

    def _send(self, value: object) -> None:
        with suppress(BrokenPipeError):  # it has ended: its output says so
            self.input.write(pickle.dumps(value))
            self.input.flush()


def serve() -> None:
    """Process items until the end of the input; output that the function prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with suppress(EOFError, BrokenPipeError):
        function = pickle.load(sys.stdin.buffer)
        while True:
            item = pickle.load(sys.stdin.buffer)
            answers.write(pickle.dumps(_answer(function, item)))
            answers.flush()


def _answer(function: Callable[[Any], Any], item: Any) -> tuple[Any, Exception | None]:
    try:
        return function(item), None
    except Exception as error:
        return None, error
