"""Arguments are checked by the annotations of what takes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Protocol, runtime_checkable

import numpy as np
import pytest

from layermem.errors import InputError
from layermem.utils.arguments import check_fields, checked

PathName = str | os.PathLike[str]


class Device:
    pass


@runtime_checkable
class Sender(Protocol):
    def send(self) -> None: ...


class Wire:
    def send(self) -> None:
        pass


class Reader(Protocol):
    def read(self) -> None: ...


@checked
def take(
    self: object = None,
    count: int = 1,
    rate: float = 1.0,
    name: str = "a",
    path: PathName | None = None,
    flag: bool = False,
    names: Sequence[str] = (),
    files: PathName | Iterable[PathName] | None = None,
    shapes: Mapping[str, Iterable[int]] | None = None,
    device: str | Device = "cpu",
    sender: Sender | None = None,
    reader: Reader | None = None,
    call: Callable[[int], object] | None = None,
    arrays: Mapping[str, Sequence[np.ndarray]] | None = None,
    budget: Annotated[int | None, "checked elsewhere"] = None,
    anything: Any = None,
    source: PathName | Any = None,
    *more: int,
    **sizes: Sequence[int],
) -> str:
    """Take."""
    return "taken"


TAKEN = {
    "count": (0, -3, np.int64(3), np.uint8(3), np.array(3)),
    "rate": (0.5, 2, np.float32(2), np.int64(2), Decimal("0.5"), np.array(0.5)),
    "name": ("", "a"),
    "path": ("a", Path("a"), None),
    "flag": (True, False, np.bool_(True)),
    "names": ([], ("a",), {"a": 1}, iter(["a"])),
    "files": ("a", Path("a"), ["a", Path("b")], None),
    "shapes": ({}, {"a": (1, 2)}, {"a": np.array([1, 2])}, None),
    "device": ("cpu", Device()),
    "call": (print, None, lambda count: 0),
    "arrays": ({"a": [np.ones(2)]}, {"a": np.ones((1, 2))}),
    "sender": (Wire(), None),
    "reader": (None, 3),
    "source": (3, "a"),
    "budget": (1, "all"),
    "anything": (1, "all", None, object()),
    "top": ([1, 2], np.array([1, 2])),
}
REFUSED = [
    ("count", "4", "argument count cannot be '4'; it takes a whole number"),
    ("count", 2.0, "argument count cannot be 2.0; it takes a whole number"),
    ("count", True, "argument count cannot be True; it takes a whole number"),
    ("count", None, "argument count cannot be None; it takes a whole number"),
    ("count", np.array([1, 2]), "argument count cannot be array([1, 2]); it takes a whole number"),
    ("rate", "0.1", "argument rate cannot be '0.1'; it takes a number"),
    ("rate", 1j, "argument rate cannot be 1j; it takes a number"),
    ("name", b"a", "argument name cannot be b'a'; it takes a string"),
    ("path", b"a", "argument path cannot be b'a'; it takes a path"),
    ("path", 3, "argument path cannot be 3; it takes a path"),
    ("flag", "no", "argument flag cannot be 'no'; it takes True or False"),
    ("flag", 1, "argument flag cannot be 1; it takes True or False"),
    ("names", "abc", "argument names cannot be 'abc'; it takes a list (a string each)"),
    ("names", [1], "argument names cannot be [1]; it takes a list (a string each)"),
    ("files", 3, "argument files cannot be 3; it takes a path or a list (a path each)"),
    ("files", [3], "argument files cannot be [3]; it takes a path or a list (a path each)"),
    (
        "shapes",
        {"a": 3},
        "argument shapes cannot be {'a': 3}; it takes a dictionary (a string to a list (a whole number each))",
    ),
    (
        "shapes",
        {"a": np.array(3)},
        "argument shapes cannot be {'a': array(3)}; it takes a dictionary (a string to a list (a whole number each))",
    ),
    ("device", 3, "argument device cannot be 3; it takes a string or a Device"),
    ("sender", 3, "argument sender cannot be 3; it takes a Sender"),
    ("call", 3, "argument call cannot be 3; it takes a function"),
    (
        "arrays",
        {"a": [[1, 2]]},
        "argument arrays cannot be {'a': [[1, 2]]}; it takes a dictionary (a string to a list (an array each))",
    ),
    ("top", 3, "argument top cannot be 3; it takes a list (a whole number each)"),
]


@pytest.mark.parametrize("name, value", [(name, value) for name, values in TAKEN.items() for value in values])
def test_what_an_annotation_permits_is_taken(name, value):
    assert take(**{name: value}) == "taken"


@pytest.mark.parametrize(("name", "value", "says"), REFUSED)
def test_what_an_annotation_does_not_permit_is_one_sentence(name, value, says):
    with pytest.raises(TypeError) as caught:
        take(**{name: value})
    assert isinstance(caught.value, InputError) and str(caught.value) == says


def test_a_value_is_quoted_short_on_one_line_and_without_control_characters():
    with pytest.raises(InputError) as caught:
        take(count="\x1b\n" + 999 * "x")
    assert len(str(caught.value)) < 130 and str(caught.value).isprintable()


def test_the_order_of_arguments_and_those_without_a_name_are_as_ever():
    assert take(None, 3) == "taken" and take.__doc__ == "Take."
    with pytest.raises(TypeError, match="argument count cannot be '3'"):
        take(None, "3")


def test_a_call_with_other_arguments_has_the_error_of_python():
    @checked
    def one(path: str) -> None:
        pass

    with pytest.raises(TypeError, match=r"one\(\) missing 1 required positional argument: 'path'"):
        one()


@dataclass(frozen=True)
class Size:
    width: int = 1
    name: str | None = None

    __post_init__ = check_fields


def test_the_fields_of_a_record_are_checked_alike():
    assert Size(np.int64(3)).width == 3
    with pytest.raises(TypeError, match="argument width cannot be '3'; it takes a whole number"):
        Size("3")
