"""Checks of the arguments that a user gives in Python, by the annotations of a function or of a record.

    @checked
    def step(self, count: int) -> None: ...

    step("3")      InputError, also a TypeError: argument count cannot be '3'; it takes a whole number

Numbers of NumPy are numbers, and True is none.  What is Annotated is checked where it is used, which says more; and an
annotation of a kind that is not below, such as Any or a Protocol, permits everything.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields
from functools import cache, wraps
from inspect import Parameter, signature
from reprlib import Repr
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

from layermem.errors import input_error_of
from layermem.utils.text import printable

F = TypeVar("F", bound=Callable[..., Any])
NUMBERS: Mapping[Any, Callable[[Any], object]] = {int: operator.index, float: float}
NAMES: Mapping[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a string",
    os.PathLike: "a pathlib.Path",
    np.ndarray: "an array",
    Callable: "a function",
    Any: "anything",
}
_quoted = Repr()
_quoted.maxstring = _quoted.maxother = 60  # letters of a value in an error


def checked(function: F) -> F:
    """Return the function with a check of its arguments by their annotations; beneath `exclusive`, for a method that is
    both."""
    shape = signature(function)

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            given = shape.bind(*arguments, **options).arguments
        except TypeError:  # the error of the call says more
            return function(*arguments, **options)
        for name, value in given.items():
            kind, hint = shape.parameters[name].kind, _hints(function).get(name, Any)
            if kind is not Parameter.VAR_POSITIONAL:
                _check(value if kind is Parameter.VAR_KEYWORD else {name: value}, hint)
        return function(*arguments, **options)

    return cast(F, call)


def check_fields(record: Any) -> None:
    """Check the fields of a dataclass, whose names are those of arguments."""
    kind: Any = type(record)
    hints = _hints(kind)
    for field in fields(record):
        _check({field.name: getattr(record, field.name)}, hints[field.name])


@cache
def _hints(annotated: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(annotated, include_extras=True)


def _check(arguments: Mapping[str, Any], hint: Any) -> None:
    for name, value in arguments.items():
        if not _fits(value, hint):
            quoted = printable(" ".join(_quoted.repr(value).split()))
            raise input_error_of(TypeError)(f"argument {name} cannot be {quoted}; it takes {_named(hint)}")


def _fits(value: Any, hint: Any) -> bool:
    """Whether an annotation permits a value."""
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if kind in NUMBERS:
        return _converts(value, NUMBERS[kind])
    if kind is bool:
        return isinstance(value, bool | np.bool_)
    if kind is Callable:
        return callable(value)
    is_open = getattr(kind, "_is_protocol", False) and not getattr(kind, "_is_runtime_protocol", False)
    if kind in (Any, Annotated) or not isinstance(kind, type) or is_open:
        return True
    if not parts or kind is np.ndarray or not issubclass(kind, Iterable):
        return isinstance(value, kind)
    if issubclass(kind, Mapping):
        items = value.items() if isinstance(value, Mapping) else ()
        return isinstance(value, Mapping) and all(_fits(key, parts[0]) and _fits(each, parts[1]) for key, each in items)
    if isinstance(value, str | bytes) or not isinstance(value, Iterable) or not getattr(value, "shape", True):
        return False
    return not isinstance(value, Collection) or all(_fits(each, parts[0]) for each in value)


def _converts(value: Any, convert: Callable[[Any], object]) -> bool:
    """Whether a value is a number, of NumPy's too."""
    if isinstance(value, str | bytes | bool | np.bool_):
        return False
    try:
        convert(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _named(hint: Any) -> str:
    """What an annotation permits, in words, besides None."""
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        names = dict.fromkeys(_named(part) for part in parts if part is not NoneType)
        if NAMES[os.PathLike] in names:
            names = {"a path": None, **{name: None for name in names if name not in (NAMES[str], NAMES[os.PathLike])}}
        return " or ".join(names)
    if kind in NAMES:
        return NAMES[kind]
    if kind is Mapping:
        return f"a dictionary ({' to '.join(map(_named, parts))})"
    if parts and issubclass(kind, Iterable):
        return f"a list ({_named(parts[0])} each)"
    name = getattr(kind, "__name__", str(kind))
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
