"""Options that variables of the environment state: LAYERMEM_HOST_BUDGET is host_budget, or --host-budget."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from layermem.errors import InputError
from layermem.utils.units import bytes_of, parse_bytes

SOME_BYTES = 2**40  # a whole, or free memory, by which a share can be parsed
SWITCHES = ("allow_python",)  # options that are on or off


def stated_options(names: Iterable[str]) -> dict[str, Any]:
    """The options among `names` that a variable states, as texts, or as True; one that is empty, or off, states
    nothing.  InputError, with the name of the variable, for another value of a switch and for what is no amount of
    memory."""
    stated = {name: _value(name) for name in names}
    return {name: value for name, value in stated.items() if value}


def variable_of(option: str) -> str:
    """The name of the variable for an option: LAYERMEM_HOST_BUDGET for host-budget."""
    return f"LAYERMEM_{option.upper().replace('-', '_')}"


def is_switch(option: str) -> bool:
    """Whether an option has no value: its variable is 1 or 0."""
    return option.replace("-", "_") in SWITCHES


def _value(option: str) -> str | bool:
    variable = variable_of(option)
    text = os.environ.get(variable, "")
    if is_switch(option) and text not in ("", "0", "1"):
        raise InputError(f"{variable}={text} is neither on nor off; use {variable}=1 or 0")
    try:
        _check_amount(option.replace("-", "_"), text)
    except InputError as error:
        raise error.at(path=variable) from None
    return text == "1" if is_switch(option) else text


def _check_amount(name: str, text: str) -> None:
    if name == "budget" and text:
        bytes_of(text, whole=lambda: SOME_BYTES, free=lambda: SOME_BYTES)
    elif name == "host_budget" and text:
        parse_bytes(text)
