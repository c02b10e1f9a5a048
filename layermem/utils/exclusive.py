"""Serializes the calls of methods of an object that several threads share.

A method marked `exclusive` holds the lock `_lock` of its object for the whole call, from storing arguments to copying
results, so that concurrent calls give the results of calls in sequence.  The lock is reentrant, because methods call
each other.

A user's code that runs within a call, in a signal handler or in a Python layer, would find the object half changed: it
may not call a method that is exclusive.  Code that is called where the object is whole may (Lock.opened).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cached_property, wraps
from threading import Lock as Mutex
from threading import RLock
from types import FrameType
from typing import Any, TypeVar, cast, overload

from layermem.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
A = TypeVar("A")
PACKAGE = __name__.partition(".")[0]
_joining = Mutex()


class Lock:
    """A reentrant lock.  Objects that read each other's values join their locks, so that no thread holds the one while
    it waits for the other.

    busy   whether the thread that holds it is in an exclusive method
    """

    def __init__(self) -> None:
        self._mutex, self._next, self.busy = RLock(), self, False

    @property
    def last(self) -> Lock:
        """The lock that this one joined, or this one."""
        lock = self
        while lock._next is not lock:
            lock = lock._next
        return lock

    @property
    def mutex(self) -> AbstractContextManager[bool]:
        return self.last._mutex

    def join(self, other: Lock) -> None:
        """Make this lock, and all that joined it, one with `other`; no method of this thread holds it."""
        with self.mutex, _joining:
            last = self.last
            last._next = other.last  # its own if they are one already

    def opened(self, function: Callable[[A], object]) -> Callable[[A], None]:
        """Return a function of a user that is called within exclusive methods, and may call such methods itself."""

        def call(argument: A) -> None:
            with self.mutex:
                lock = self.last
                before = lock.busy
                try:
                    lock.busy = False
                    function(argument)
                finally:
                    lock.busy = before

        return call


def exclusive(method: F) -> F:
    """Return the method with the lock around it: it waits until no other thread is in an exclusive method of the
    object."""

    @wraps(method)
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        while True:
            lock = self._lock.last
            with lock.mutex:  # RLock's own, so that an exception of a signal handler cannot leave it locked
                if lock is not self._lock.last:  # joined another one meanwhile
                    continue
                before = lock.busy
                if before and _is_outside(sys._getframe(1), method.__name__):
                    raise InputError(
                        f"'{method.__name__}' was called within another call of this net or solver, by a signal "
                        "handler or a Python layer; let the handler set a flag, or call solver.request, and call it "
                        "afterwards"
                    )
                try:
                    lock.busy = True
                    return method(self, *arguments, **options)
                finally:
                    lock.busy = before

    return cast(F, call)


def _is_outside(caller: FrameType, method: str) -> bool:
    """Whether the code that calls a method is a user's, and no override of it."""
    name = str(caller.f_globals.get("__name__", ""))
    return name.partition(".")[0] != PACKAGE and caller.f_code.co_name != method


class made_once(cached_property[T]):
    """A cached property that one thread computes while all others wait for it."""

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> made_once[T]: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...
    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        if instance is None:
            return self
        with instance._lock.mutex:
            return super().__get__(instance, owner)
