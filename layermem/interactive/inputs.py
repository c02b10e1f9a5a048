"""Checks of the arrays that a user gives to a net, and texts of their shapes for errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from layermem.errors import InputError
from layermem.interactive.blob import Array
from layermem.utils.text import shape_text


def as_numbers(name: str, value: npt.ArrayLike) -> Array:
    """Convert to an array of numbers; InputError for anything else."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError(f"'{name}' is no array of numbers ({error}); give arrays of one shape") from None
    if array.dtype == object and not array.ndim:
        raise InputError(
            f"'{name}' is of the type {type(value).__name__}, and a net takes numbers; give an array or a list"
        )
    if array.dtype.kind not in "fiub":
        raise InputError(f"'{name}' holds {array.dtype}, and a net takes numbers; convert it to float32")
    return array


def check_names(given: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    """Raise InputError unless exactly the names `known` are given."""
    missing, unknown = [n for n in known if n not in given], [n for n in given if n not in known]
    if missing or unknown:
        wrong = f"no '{unknown[0]}' among them" if unknown else f"'{missing[0]}' is missing"
        raise InputError(f"the net takes {what}s {', '.join(known) or '(none)'}, and {wrong}; give each of them")


def shapes_text(shapes: Sequence[Sequence[int]]) -> str:
    return ", ".join(map(shape_text, shapes))
