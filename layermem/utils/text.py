"""Text for a terminal: at most 100 columns, and no wider than the terminal.

wrap("layermem: net.prototxt:3: layer 'ip1' ...")     continuation lines are indented by two
wrap("  peak at  backward res4f: ...")                a labelled line continues below its text
printable(name)                                       control characters are escaped
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterable
from difflib import get_close_matches

CUTOFF = 0.65  # of words that are suggested: "nested" is not near "best"
MAX_COLUMNS = 100  # width of all output, even on a wider terminal
MIN_COLUMNS = 40  # below this nothing is aligned; the terminal itself wraps lines
INDENT = "  "
LABEL_WIDTH = 16  # columns of labels in front of the facts of a plan or a run
_LABEL = re.compile(r"\s*\S+(?: \S+)*\s{2,}(?=\S)")  # words before two blanks and a text
NO_BREAK = "\u00a0"  # `wrap` does not break here, and prints a plain blank
_SIZE = re.compile(
    r"(?<=\d) (?=(?:[KMGT]iB|B|bytes|us|ms|s|%)(?!\w))|(?<=\S) (?=\d[\d.,]* [KMGT]?i?B\b)"
)  # their blanks
_QUOTED = re.compile(r"`[^`]{1,40}`")  # short commands
# Control characters but line feed and tab, and those that reorder the text around them.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def columns() -> int:
    """Number of columns to print in: of the terminal, or COLUMNS, and MAX_COLUMNS in a pipe."""
    terminal = shutil.get_terminal_size((MAX_COLUMNS, 24)).columns
    return min(max(terminal, MIN_COLUMNS), MAX_COLUMNS)


def printable(text: str) -> str:
    """Return `text` with control characters escaped as in Python: file content must not control the terminal."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that `word` probably stands for."""
    return next(iter(get_close_matches(word, list(known), n=1, cutoff=CUTOFF)), None)


def advice_for(word: str, known: Iterable[str]) -> str:
    """Return the advice for an unknown word: "did you mean plan? choose from plan, train"."""
    known = list(known)
    near = nearest(word, known)
    return (f"did you mean {near}? " if near else "") + f"choose from {', '.join(known)}"


def count_text(count: int, what: str) -> str:
    """Return a number with its noun: "1 blob", "2 blobs", "3 layers with parameters", "2 classes"."""
    noun, blank, rest = what.partition(" ")
    plural = noun if count == 1 else f"{noun}es" if noun.endswith(("s", "ch")) else f"{noun}s"
    return f"{count:,} {plural}{blank}{rest}"


def shape_text(shape: Iterable[object]) -> str:
    """A shape as users read it: "64x3x224x224", or "scalar" without axes."""
    return "x".join(map(str, shape)) or "scalar"


def abbreviated(line: str, limit: int = 4000) -> str:
    """Return `line` with an ellipsis in place of its middle if it has more than `limit` characters."""
    return line if len(line) <= limit else f"{line[: limit // 2]}...{line[-limit // 2 :]}"


def wrap(line: str, width: int | None = None) -> str:
    """Break `line` at blanks to `width` columns (by default of the terminal); words and sizes stay whole, and control
    characters are escaped."""
    line = printable(line)
    label = _LABEL.match(line)
    lines = textwrap.wrap(
        _QUOTED.sub(lambda match: match[0].replace(" ", NO_BREAK), _SIZE.sub(NO_BREAK, line)),
        width or columns(),
        subsequent_indent=" " * len(label[0]) if label else INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace(NO_BREAK, " ")
