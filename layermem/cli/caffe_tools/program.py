"""A program of Caffe: its flags, how it logs, and the function that it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from layermem.cli.caffe_tools.gflags import Flag, Value
from layermem.errors import InputError

if TYPE_CHECKING:
    import argparse

    from layermem.cli.caffe_tools.glog import Glog
    from layermem.distributed.group import Group

ABORTED = 134  # what a shell sees of a program that a failed CHECK ends by SIGABRT
USAGE = 1  # exit code of wrong flags, and of most programs without arguments


@dataclass(frozen=True)
class Call:
    """A program that was started: values of its flags, its other words, its log, and the command line of `layermem`."""

    values: Mapping[str, Value]
    words: Sequence[str]
    log: Glog
    arguments: argparse.Namespace

    @property
    def group(self) -> Group:
        group: Group = self.arguments.group
        return group

    def text(self, name: str) -> str:
        """Return the value of a flag that is a text."""
        return str(self.values[name])

    def needed(self, name: str, what: str) -> str:
        """Return the value of a flag that must be given."""
        if not self.values[name]:
            raise InputError(f"needs {what}; give -{name} FILE")
        return self.text(name)


@dataclass(frozen=True)
class CaffeProgram:
    """One of Caffe's programs.

    run      does its work, and returns the exit code
    usage    its words, as in its help
    counts   the numbers of words that it takes
    usage_code    exit code with another number of words
    flags    its own flags, besides those of glog
    has_flags     whether words with a dash are flags; otherwise all words are arguments, and the usage is in the log
    place    source file that lines of its log name
    on_terminal   whether all its lines are on standard error; otherwise errors, and the others in files
    """

    run: Callable[[Call], int]
    usage: str
    counts: range
    place: str
    usage_code: int = USAGE
    flags: tuple[Flag, ...] = ()
    has_flags: bool = True
    on_terminal: bool = True
