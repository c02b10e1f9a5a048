"""Serializes the calls of methods of an object that several threads share.

A method marked `exclusive` holds the lock `_lock` of its object for the whole call, from storing arguments to copying
results, so that concurrent calls give the results of calls in sequence.  The lock is reentrant: methods call each
other, and callbacks of a user call them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any, TypeVar, cast, overload

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def exclusive(method: F) -> F:
    """Return the method with the lock around it: it waits until no other thread is in an exclusive method of the
    object."""

    @wraps(method)
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        with self._lock:
            return method(self, *arguments, **options)

    return cast(F, call)


class made_once(cached_property[T]):
    """A cached property that one thread computes while all others wait for it."""

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> made_once[T]: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...
    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        if instance is None:
            return self
        with instance._lock:
            return super().__get__(instance, owner)
