"""Options that variables of the environment state: LAYERMEM_HOST_BUDGET is host_budget, or --host-budget."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any


def stated_options(names: Iterable[str]) -> dict[str, Any]:
    """The options among `names` that a variable states, as texts; an empty variable states nothing."""
    texts = {name: os.environ.get(f"LAYERMEM_{name.upper().replace('-', '_')}") for name in names}
    return {name: text for name, text in texts.items() if text}
