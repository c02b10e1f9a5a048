"""Options that variables of the environment state: LAYERMEM_HOST_BUDGET is host_budget, or --host-budget."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from layermem.errors import InputError
from layermem.utils.units import FREE, bytes_of, free_share, parse_bytes

SOME_BYTES = 2**40  # a whole, or free memory, by which a share can be parsed


def stated_options(names: Iterable[str]) -> dict[str, Any]:
    """The options among `names` that a variable states, as texts; an empty variable states nothing.  InputError, with
    the name of the variable, for what is no amount of memory."""
    texts = {name: os.environ.get(variable_of(name)) for name in names}
    stated = {name: text for name, text in texts.items() if text}
    for name, text in stated.items():
        try:
            _check_amount(name.replace("-", "_"), text)
        except InputError as error:
            raise error.at(path=variable_of(name)) from None
    return stated


def variable_of(option: str) -> str:
    """The name of the variable for an option: LAYERMEM_HOST_BUDGET for host-budget."""
    return f"LAYERMEM_{option.upper().replace('-', '_')}"


def _check_amount(name: str, text: str) -> None:
    if name == "budget":
        free_share(text, SOME_BYTES) if text.endswith(FREE) else bytes_of(text, whole=lambda: SOME_BYTES)
    elif name == "host_budget":
        parse_bytes(text)
