"""Text for a terminal: at most 100 columns, and no wider than the terminal.

wrap("layermem: net.prototxt:3: layer 'ip1' ...")     continuation lines are indented by two
wrap("  peak at  backward res4f: ...")                a labelled line continues below its text
"""

from __future__ import annotations

import re
import shutil
import textwrap

MAX_COLUMNS = 100  # of everything that is printed, on however wide a terminal
MIN_COLUMNS = 40  # below this nothing is aligned any more; the terminal wraps lines itself
INDENT = "  "
_LABEL = re.compile(r"\s*\S+(?: \S+)*\s{2,}(?=\S)")  # words that two blanks set apart from their text
NO_BREAK = "\u00a0"  # a blank at which `wrap` does not break; it prints a plain one
_SIZE = re.compile(
    r"(?<=\d) (?=(?:[KMGT]iB|B|bytes|us|ms|s|%)(?!\w))|(?<=\S) (?=\d[\d.,]* [KMGT]?i?B\b)"
)  # their blanks
_QUOTED = re.compile(r"`[^`]{1,40}`")  # short commands


def columns() -> int:
    """Columns to print in: those of the terminal, or of COLUMNS, and MAX_COLUMNS in a pipe."""
    terminal = shutil.get_terminal_size((MAX_COLUMNS, 24)).columns
    return min(max(terminal, MIN_COLUMNS), MAX_COLUMNS)


def wrap(line: str, width: int | None = None) -> str:
    """`line` broken at blanks to `width` columns (by default those of the terminal); words and sizes stay whole."""
    label = _LABEL.match(line)
    lines = textwrap.wrap(
        _QUOTED.sub(lambda match: match[0].replace(" ", NO_BREAK), _SIZE.sub(NO_BREAK, line)),
        width or columns(),
        subsequent_indent=" " * len(label[0]) if label else INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace(NO_BREAK, " ")
