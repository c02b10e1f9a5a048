"""Calls of an object that several threads share: they run one after the other.

A method marked `exclusive` holds the lock `_lock` of its object for the whole call, from the arguments that it stores
to the results that it copies, so that it gives what the same call gives alone.  The lock is reentrant: methods call
each other, and callbacks of a user call them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any, TypeVar, cast, overload

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def exclusive(method: F) -> F:
    """The method, which waits until no other thread is in one of the same object."""

    @wraps(method)
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        with self._lock:
            return method(self, *arguments, **options)

    return cast(F, call)


class made_once(cached_property[T]):
    """A cached property that one thread makes while all others wait for it."""

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> made_once[T]: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...
    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        if instance is None:
            return self
        with instance._lock:
            return super().__get__(instance, owner)
