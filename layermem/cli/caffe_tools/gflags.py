"""Parses command lines as gflags does, the library of Caffe's programs.

    -name value   -name=value   --name value   --name=value      a text or a number
    -name   -noname   -name=false                                a flag that is on or off
    --flagfile=F,F                                               flags from the lines of files
    --fromenv=name,name   --tryfromenv=name                      flags from variables FLAGS_name of the environment
    --undefok=name,name                                          names that may be unknown
    --                                                           the end of the flags

The last of several values counts.  A dash within a name stands for an underscore.  In a file of flags a value follows
"=", unknown flags are skipped, and a line without a dash names the programs for which the flags after it are, with
wildcards.

source  gflags 2.2
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from layermem.errors import InputError
from layermem.utils.input_files import read_lines

Value = str | int | bool
INT_END = 2**31  # numbers are int32
NUMBER = re.compile(r"\s*[-+]?[0-9]+|0[xX][0-9a-fA-F]+")
TRUE, FALSE = ("1", "t", "true", "y", "yes"), ("0", "f", "false", "n", "no")
MAX_DEPTH = 8  # of files of flags, and variables, within each other


@dataclass(frozen=True)
class Flag:
    """A flag with its default, whose type is that of its values, and what it does in a few words."""

    name: str
    default: Value
    help: str

    @property
    def is_switch(self) -> bool:
        return isinstance(self.default, bool)

    @property
    def kind(self) -> str:
        return "bool" if self.is_switch else "int32" if isinstance(self.default, int) else "string"


OWN = (  # flags of gflags itself
    Flag("flagfile", "", "files of flags, one in a line"),
    Flag("fromenv", "", "flags whose values are variables FLAGS_name of the environment"),
    Flag("tryfromenv", "", "as fromenv, for variables that may be absent"),
    Flag("undefok", "", "names of flags that may be unknown"),
)


def parse_flags(
    words: Sequence[str], flags: Iterable[Flag], program: str = ""
) -> tuple[dict[str, Value], list[str], list[str]]:
    """Return the value of every flag, the words that are no flags, and what is wrong with others."""
    parser = _Parser(flags, program)
    others = parser.parse(list(words))
    permitted = {*str(parser.values["undefok"]).split(",")} - {""}
    errors = [text for name, text in parser.errors if not {name, name.removeprefix("no")} & permitted]
    return parser.values, others, errors


class _Parser:
    """Sets the values of flags, and collects errors, each with the name of an unknown flag, or ""."""

    def __init__(self, flags: Iterable[Flag], program: str):
        self.known: Mapping[str, Flag] = {flag.name: flag for flag in (*flags, *OWN)}
        self.values = {name: flag.default for name, flag in self.known.items()}
        self.errors: list[tuple[str, str]] = []
        self.program = program

    def parse(self, words: list[str]) -> list[str]:
        """Read a command line; return the words that are no flags."""
        others: list[str] = []
        while words:
            word = words.pop(0)
            if word == "--":
                return words + others
            if not word.startswith("-") or word == "-":
                others.append(word)
                continue
            text, equals, given = word[2 if word.startswith("--") else 1 :].partition("=")
            flag, is_on = self._find(text)
            if flag is None:
                self.errors.append((text, _unknown(text, self.known)))
            elif flag.is_switch:
                self._set(flag, given if equals and is_on else str(is_on))
            elif equals or words:
                self._set(flag, given if equals else words.pop(0))
            else:
                what = f"flag '{word}' is missing its argument; flag description: {flag.help}"
                self.errors.append(("", what))
        return others

    def _find(self, text: str) -> tuple[Flag | None, bool]:
        """Return the flag of a word without its dashes, and whether the word turns it on."""
        name = text.replace("-", "_")
        if name in self.known:
            return self.known[name], True
        positive = self.known.get(name.removeprefix("no")) if name.startswith("no") else None
        return (positive if positive is not None and positive.is_switch else None), False

    def _set(self, flag: Flag, text: str, depth: int = 0) -> None:
        value = _value(flag, text)
        if value is None:
            self.errors.append(("", f"illegal value '{text}' specified for {flag.kind} flag '{flag.name}'"))
            return
        self.values[flag.name] = value
        if flag.name == "flagfile":
            for path in text.split(","):
                self._read_file(path, depth + 1)
        elif flag.name in ("fromenv", "tryfromenv"):
            for name in text.split(","):
                self._read_variable(name, depth + 1, is_needed=flag.name == "fromenv")

    def _read_file(self, path: str, depth: int) -> None:
        """Set the flags in the lines of a file."""
        if depth > MAX_DEPTH:
            self.errors.append(("", f"flagfile '{path}' is within {MAX_DEPTH} others; does it name itself?"))
            return
        try:
            lines = read_lines(path, what="file of flags")
        except InputError as error:
            self.errors.append(("", str(error)))
            return
        for line in _lines_of(lines, self.program):
            text, equals, given = line[2 if line.startswith("--") else 1 :].partition("=")
            flag, is_on = self._find(text)
            if flag is not None and (equals or flag.is_switch):
                self._set(flag, given if equals and is_on else str(is_on), depth)

    def _read_variable(self, name: str, depth: int, *, is_needed: bool) -> None:
        """Set the flag `name` to the variable FLAGS_name."""
        text = os.environ.get(f"FLAGS_{name}")
        if depth > MAX_DEPTH:
            self.errors.append(("", f"FLAGS_{name} is within {MAX_DEPTH} others; does it name itself?"))
        elif name not in self.known:
            self.errors.append((name, f"unknown command line flag '{name}' (via --fromenv or --tryfromenv)"))
        elif text is not None:
            self._set(self.known[name], text, depth)
        elif is_needed:
            self.errors.append(("", f"FLAGS_{name} not found in environment"))


def _unknown(text: str, known: Mapping[str, Flag]) -> str:
    positive = known.get(text.replace("-", "_").removeprefix("no"))
    if text.startswith("no") and positive is not None:
        return f"boolean value ({text}) specified for {positive.kind} command line flag"
    return f"unknown command line flag '{text}'"


def _value(flag: Flag, text: str) -> Value | None:
    """Return `text` as a value of the flag's type; None if it is none."""
    if flag.is_switch:
        return text.lower() in TRUE if text.lower() in TRUE + FALSE else None
    if not isinstance(flag.default, int):
        return text
    if not NUMBER.fullmatch(text):
        return None
    number = int(text, 16 if text.lower().startswith("0x") else 10)
    return number if -INT_END <= number < INT_END else None


def _lines_of(lines: Iterable[str], program: str) -> Iterator[str]:
    """The lines of a file of flags that are flags for the program."""
    is_meant, was_flag = True, True
    for line in map(str.strip, lines):
        if not line or line.startswith("#"):
            continue
        if line.startswith("-"):
            was_flag = True
            if is_meant:
                yield line
            continue
        is_meant = (is_meant and not was_flag) or any(fnmatchcase(program, pattern) for pattern in line.split())
        was_flag = False
