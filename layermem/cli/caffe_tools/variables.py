"""Variables of the environment for what Caffe's flags lack: LAYERMEM_BUDGET is --budget, in words and in texts."""

from __future__ import annotations

import re

from layermem.utils.environment import is_switch, stated_options, variable_of

SHARED = ("budget", "storage", "threads", "precision", "allow-python")
OF_A_PLAN = ("host-budget", "spill", "slices", "split-weights", "strategy")
ENVIRONMENT_OF = {
    "train": (*SHARED, *OF_A_PLAN, "loss-scale", "transport"),
    "test": SHARED,
    "time": (*SHARED, *OF_A_PLAN),
}
DEVICE_OF = {"threads": "cpu", "precision": "cuda", "transport": "cuda"}  # options of one device
_OPTION = re.compile(rf"(?<![\w/-])--({'|'.join(ENVIRONMENT_OF['train'])})(?![\w-])( (?=[A-Z0-9]|auto\b|bf16|\S+/\d))?")
_FLAGS = (("use --device cpu", "leave -gpu out"), ("--net ", "-model "))  # what has another name among the flags


def environment_words(verb: str, device: str) -> list[str]:
    """Return the options of a verb that variables LAYERMEM_NAME state."""
    words: list[str] = []
    for option, value in stated_options(ENVIRONMENT_OF[verb]).items():
        if DEVICE_OF.get(option, device) == device:
            words += [f"--{option}"] if is_switch(option) else [f"--{option}", value]
    return words


def in_words_of_caffe(text: str) -> str:
    """Return a text about options of `layermem` with the variables and flags that Caffe's programs have for them."""
    for ours, theirs in _FLAGS:
        text = text.replace(ours, theirs)
    return _OPTION.sub(_variable, text)


def _variable(match: re.Match[str]) -> str:
    value = "=1" if is_switch(match[1]) else "=" if match[2] else ""
    return variable_of(match[1]) + value
