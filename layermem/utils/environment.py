"""Options that variables of the environment state: LAYERMEM_HOST_BUDGET is host_budget, or --host-budget."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from layermem.errors import InputError
from layermem.utils.units import bytes_of, parse_bytes

SOME_BYTES = 2**40  # a whole, or free memory, by which a share can be parsed
SWITCHES = {"allow_python": {"1": True, "0": False}}  # options that are on or off, by the texts for both


def stated_options(names: Iterable[str]) -> dict[str, Any]:
    """The options among `names` that a variable states, as texts, or as True; one that is empty, or off, states
    nothing.  InputError, with the name of the variable, for another value of a switch and for what is no amount of
    memory."""
    stated = {name: _value(name) for name in names}
    return {name: value for name, value in stated.items() if value}


def variable_of(option: str) -> str:
    """The name of the variable for an option: LAYERMEM_HOST_BUDGET for host-budget."""
    return f"LAYERMEM_{option.upper().replace('-', '_')}"


def _value(option: str) -> str | bool:
    variable, name = variable_of(option), option.replace("-", "_")
    text = os.environ.get(variable, "")
    if name in SWITCHES and text:
        if text not in SWITCHES[name]:
            raise InputError(f"{variable}={text} is neither on nor off; use {variable}=1 or 0")
        return SWITCHES[name][text]
    try:
        _check_amount(name, text)
    except InputError as error:
        raise error.at(path=variable) from None
    return text


def _check_amount(name: str, text: str) -> None:
    if name == "budget" and text:
        bytes_of(text, whole=lambda: SOME_BYTES, free=lambda: SOME_BYTES)
    elif name == "host_budget" and text:
        parse_bytes(text)
