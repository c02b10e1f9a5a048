"""A feed that prefetches batches in a thread, so that decoding overlaps computation.

The state belongs to the batch that `next` returns next, which the thread may have read long before.  An error in the
thread is raised by the `next` that would have returned its batch, and by every later one.

At most `depth` + 2 batches are in memory: the one in use, which the caller drops before the next one, those that wait,
and the one being read.  With `fills` the first `next` waits until there are so many, whatever is slower, the thread or
the caller: the memory of the process is then the same in each run, and a run that waits for its data takes no longer.

If the system cannot start a thread, `next` itself reads the batch.  A forked child has no thread; its feed starts a new
one at the next batch.
"""

from __future__ import annotations

import os
import queue
import threading
import weakref

import numpy as np

from layermem.data.feed import Batch, Feed
from layermem.data.position import State

_Item = tuple[Batch, State] | BaseException  # a batch and the state after it, or the error
POLL_SECONDS = 0.05  # interval at which a waiting thread checks whether to stop


class Prefetch(Feed):
    """Wraps `feed` with a queue of up to `depth` batches.  The thread starts with the first `next`."""

    def __init__(self, feed: Feed, depth: int, *, fills: bool = False):
        self.feed, self.depth, self.fills = feed, depth, fills
        self.shapes, self.notes, self.varies = feed.shapes, feed.notes, feed.varies
        self._state = feed.state()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._is_in_use = False  # whether a batch of the thread is
        self._process = os.getpid()  # process in which the thread runs
        self._stop = threading.Event()

    def _next(self) -> Batch:
        if self._error is not None:
            raise self._error
        if self._process != os.getpid():
            self._halt()
            self.feed.restore(self._state)
        if self._thread is None and not self._start():
            return self._read_here()
        if self._is_in_use:
            self._places.give_back()
        elif self.fills:
            self._places.full.wait()
        self._is_in_use = True
        item = self._ready.get()
        if isinstance(item, BaseException):
            self._error = item
            raise item
        batch, self._state = item
        return batch

    def _skip(self, batches: int) -> None:
        self.restore(self._state)
        self.feed.skip(batches)
        self._state = self.feed.state()

    @property
    def items(self) -> int | None:
        return self.feed.items

    def constant(self, top: int) -> np.ndarray | None:
        return self.feed.constant(top)

    def read_arrays_of(self, other: Feed) -> None:
        assert isinstance(other, Prefetch)
        self.feed.read_arrays_of(other.feed)

    def state(self) -> State:
        return dict(self._state)

    def _read_here(self) -> Batch:
        try:
            batch = self.feed.next()
        except Exception as error:
            self._error = error
            raise
        self._state = self.feed.state()
        return batch

    def restore(self, state: State) -> None:
        self._halt()
        self.feed.restore(state)
        self._state, self._error = self.feed.state(), None

    def check(self, state: State) -> None:
        self.feed.check(state)

    def close(self) -> None:
        self._halt()
        self.feed.close()

    def _start(self) -> bool:
        """Start the thread; return False if the system cannot."""
        self._stop = threading.Event()
        self._ready: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._places, self._is_in_use = _Places(self.depth + 2), False
        thread = threading.Thread(
            target=_read_ahead,
            args=(self.feed, self._ready, self._places, self._stop),
            name="layermem-prefetch",
            daemon=True,
        )
        try:
            thread.start()
        except (RuntimeError, MemoryError):  # can't start new thread
            return False
        weakref.finalize(self, self._stop.set)  # the thread holds no reference to this object
        self._thread, self._process = thread, os.getpid()
        return True

    def _halt(self) -> None:
        """Stop the thread.  The position of `feed` is then ahead of the next batch."""
        if self._process != os.getpid():  # the thread is in the parent; it may have held any lock of this object
            self._process, self._thread = os.getpid(), None
        elif self._thread is not None:
            self._stop.set()
            self._places.give_back()  # ends a thread that waits for one without its next poll
            self._thread.join()
            self._thread = None


class _Places:
    """The places that batches have in memory; `full` is set when the thread finds none for the first time, or ends."""

    def __init__(self, count: int):
        self._free, self.full = threading.Semaphore(count), threading.Event()

    def give_back(self) -> None:
        self._free.release()

    def take(self, stop: threading.Event) -> None:
        """Wait for a place, or for `stop`."""
        if not self._free.acquire(blocking=False):
            self.full.set()
            while not stop.is_set() and not self._free.acquire(timeout=POLL_SECONDS):
                pass


def _read_ahead(feed: Feed, ready: queue.SimpleQueue[_Item], places: _Places, stop: threading.Event) -> None:
    try:
        while True:
            places.take(stop)
            if stop.is_set():
                break
            ready.put((feed.next(), feed.state()))
    except BaseException as error:
        ready.put(error)
    finally:
        places.full.set()
