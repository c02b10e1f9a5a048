"""completion: the lines that make a shell complete verbs, options and their values with the tab key.

The shell runs the command itself with _ARGCOMPLETE set; `complete` then answers with the possible words.
source  argcomplete
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable

from layermem.cli.parser import Verbs, add_verb
from layermem.errors import InputError

EXAMPLE = "  layermem completion bash\n"
MORE = """\
bash:  eval "$(layermem completion bash)"       in ~/.bashrc
zsh:   eval "$(layermem completion zsh)"        in ~/.zshrc
fish:  layermem completion fish | source        in ~/.config/fish/config.fish
"""
SHELLS = ("bash", "zsh", "fish")
INSTALL = "pip install 'layermem[completion]'"


def add_verbs(verbs: Verbs) -> None:
    description = "print what makes a shell complete verbs, options and their values"
    parser = add_verb(verbs, "completion", description, EXAMPLE, more=lambda: MORE)
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    parser.set_defaults(run=run_completion)


def run_completion(arguments: argparse.Namespace) -> int:
    try:
        from argcomplete.shell_integration import shellcode
    except ModuleNotFoundError:
        raise InputError(f"completion needs the package argcomplete; install it: {INSTALL}") from None
    print(shellcode(["layermem"], shell=arguments.shell).strip())
    return 0


def is_wanted() -> bool:
    """Whether a shell runs the command to complete a word."""
    return "_ARGCOMPLETE" in os.environ


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell, and end the process."""
    try:
        import argcomplete
    except ModuleNotFoundError:
        return
    for action in _actions(parser):
        if action.dest in VALUES:
            action.completer = _completer(VALUES[action.dest])  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser)


def _actions(parser: argparse.ArgumentParser) -> Iterable[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from _actions(each)


def _strategies() -> Iterable[str]:
    from layermem.planning.strategies import STRATEGIES

    return STRATEGIES


def _devices() -> Iterable[str]:
    from layermem.backends.base import describe_devices

    return describe_devices()


def _gpus() -> Iterable[str]:
    from layermem.planning.gpus import gpus

    return gpus()


def _completer(values: Callable[[], Iterable[str]]) -> Callable[..., list[str]]:
    """A completer of the values that begin with the word, or with its part after the last comma."""

    def completer(prefix: str, **_: object) -> list[str]:
        done, comma, begin = prefix.rpartition(",")
        return [f"{done}{comma}{value}" for value in values() if value.startswith(begin)]

    return completer


def _storages() -> Iterable[str]:
    from layermem.backends.base import STORAGES

    return STORAGES


VALUES: dict[str, Callable[[], Iterable[str]]] = {
    "strategy": _strategies,
    "strategies": _strategies,
    "device": _devices,
    "gpu": _gpus,
    "precision": lambda: ("fp32", "fp32x3", "tf32", "bf16"),
    "storage": _storages,
    "loss_scale": lambda: ("dynamic", "1024", "65536"),
}
