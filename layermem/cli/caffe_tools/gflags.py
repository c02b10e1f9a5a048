"""Parses command lines as gflags does, the library of Caffe's programs.

    -name value   -name=value   --name value   --name=value      a text or a number
    -name   -noname   -name=false                                a flag that is on or off
    --flagfile=FILE                                              flags from the lines of a file
    --                                                           the end of the flags

The last of several values counts.  A dash within a name stands for an underscore.  Errors end with exit code 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from layermem.errors import LayermemError
from layermem.utils.input_files import read_lines

Value = str | int | bool
INT_END = 2**31  # numbers are int32
TRUE, FALSE = ("1", "t", "true", "y", "yes"), ("0", "f", "false", "n", "no")
FLAG_FILE = "flagfile"
MAX_DEPTH = 8  # of files of flags within files of flags


class FlagError(LayermemError):
    """A flag is unknown, lacks its value or has an impossible one."""

    exit_code = 1


@dataclass(frozen=True)
class Flag:
    """A flag with its default, whose type is that of its values, and what it does in a few words."""

    name: str
    default: Value
    help: str


def parse_flags(words: Sequence[str], flags: Iterable[Flag]) -> tuple[dict[str, Value], list[str]]:
    """Return the value of every flag, and the words that are no flags; FlagError for wrong ones."""
    known = {flag.name: flag for flag in (*flags, Flag(FLAG_FILE, "", "a file of flags, one in a line"))}
    values = {name: flag.default for name, flag in known.items()}
    return values, _parse(list(words), known, values, 0)


def _parse(words: list[str], known: Mapping[str, Flag], values: dict[str, Value], depth: int) -> list[str]:
    """Set `values` to those in `words`, and return the words that are no flags."""
    others: list[str] = []
    while words:
        word = words.pop(0)
        if word == "--":
            return others + words
        if not word.startswith("-") or word == "-":
            others.append(word)
            continue
        text, equals, given = word[2 if word.startswith("--") else 1 :].partition("=")
        flag, is_on = _find(text, known)
        if isinstance(flag.default, bool):
            values[flag.name] = _value(flag, given) if equals and is_on else is_on
            continue
        if not equals and not words:
            raise FlagError(f"flag '--{flag.name}' is missing its argument; it is {flag.help}")
        values[flag.name] = _value(flag, given if equals else words.pop(0))
        if flag.name == FLAG_FILE:
            _read_file(str(values[flag.name]), known, values, depth + 1)
    return others


def _find(text: str, known: Mapping[str, Flag]) -> tuple[Flag, bool]:
    """Return the flag of a word without its dashes, and whether the word turns it on."""
    name = text.replace("-", "_")
    if name in known:
        return known[name], True
    positive = known.get(name.removeprefix("no"))
    if name.startswith("no") and positive is not None and isinstance(positive.default, bool):
        return positive, False
    raise FlagError(f"unknown command line flag '{text}'")


def _value(flag: Flag, text: str) -> Value:
    """Return `text` as a value of the flag's type."""
    if isinstance(flag.default, bool):
        if text.lower() in TRUE + FALSE:
            return text.lower() in TRUE
        raise FlagError(f"illegal value '{text}' specified for bool flag '{flag.name}'")
    if isinstance(flag.default, int):
        try:
            number = int(text, 16 if text.lower().startswith("0x") else 10)
        except ValueError:
            number = INT_END
        if not -INT_END <= number < INT_END:
            raise FlagError(f"illegal value '{text}' specified for int32 flag '{flag.name}'")
        return number
    return text


def _read_file(path: str, known: Mapping[str, Flag], values: dict[str, Value], depth: int) -> None:
    """Set `values` to the flags in the lines of a file; other lines are comments."""
    if depth > MAX_DEPTH:
        raise FlagError(f"flagfile '{path}' is within {MAX_DEPTH} others; does it name itself?")
    lines = [line.strip() for line in read_lines(path, what="file of flags")]
    for line in lines:
        if line.startswith("-"):
            _parse([line], known, values, depth)
