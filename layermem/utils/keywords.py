"""Public functions whose keywords are the fields of records.

    net, step = split("plan", {"batch": 8, "budget": "2GiB"}, NetOptions, StepOptions)

Each record has a class method `of`, which makes one from a user's arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from inspect import Parameter, Signature, getdoc
from typing import Any

from layermem.utils.similar import did_you_mean


def split(function: str, options: Mapping[str, Any], *records: Any, hidden: Collection[str] = ()) -> list[Any]:
    """Make one instance of each record from the keywords that are its fields.

    TypeError for a keyword that is no field, or is `hidden`."""
    names = [[field.name for field in fields(record) if field.name not in hidden] for record in records]
    known = [name for each in names for name in each]
    for name in options:
        if name not in known:
            hint = did_you_mean(name, known) or "its help lists those it takes"
            raise TypeError(f"{function}() got an unexpected keyword argument '{name}'; {hint}")
    given = [{name: options[name] for name in each if name in options} for each in names]
    return [record.of(**each) for record, each in zip(records, given)]


def signature(first: str, *records: Any, hidden: Collection[str] = ()) -> Signature:
    """The signature, for help(), of a function that takes an argument `first` and then the fields of `records`."""
    keywords = [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
        for record in records
        for field in fields(record)
        if field.name not in hidden
    ]
    return Signature([Parameter(first, Parameter.POSITIONAL_OR_KEYWORD), *keywords])


def documented(*records: Any) -> str:
    """The tables of fields in the docstrings of `records`, one below the other."""
    return "\n".join((getdoc(record) or "").partition("\n\n")[2] for record in records)
