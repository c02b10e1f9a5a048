"""Prints tables: with rich on a terminal, as plain aligned text in a pipe or file.

    print_table(["net", ">peak"], [["lenet", "1.20 MiB"]], total=["sum", "1.20 MiB"])

A heading that starts with ">" is a column of numbers, flush right.  No line is wider than 100 columns.  If a table does
not fit, text is folded at blanks, and words too long for their column are shortened in the middle:
"inception_..3x3_reduce".  Numbers and shapes are never cut.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from typing import TextIO

from layermem.utils.text import MAX_COLUMNS, columns, printable, wrap

GAP = "  "  # between columns of plain text
READABLE_WIDTH = 20  # width of a word below which optional columns are left out
MIN_WIDTH = 8  # smallest width of a shortened word
MARK = ".."  # the middle of a shortened word
NUMBER = re.compile(r"[-+>=]*\d[\d.,x%]*")  # a number or a shape

Row = Sequence[str]


def print_table(
    headings: Row,
    rows: Sequence[Row],
    *,
    total: Row | None = None,
    title: str = "",
    optional: Sequence[str] = (),
    file: TextIO | None = None,
) -> None:
    """Write the rows under their headings to `file` (standard output), with `total` as a separate last row.

    `optional` headings are left out, in this order, while the table is too wide for its terminal; a line below the
    table names them.  Verbs with such tables have --json.
    """
    file = file or sys.stdout
    title = _in_line(title)
    cells = [[_in_line(cell) for cell in row] for row in (headings, *rows, *([total] if total else []))]
    left_out: list[str] = []
    possible = _fits(cells, _flush_right(headings), MAX_COLUMNS)
    for name in optional:
        if _fits(cells, _flush_right(headings), columns()):
            break
        left_out.append(name.removeprefix(">"))
        index = headings.index(name)
        cells = [[*row[:index], *row[index + 1 :]] for row in cells]
        headings = cells[0]
    rows, total = (cells[1:-1], cells[-1]) if total else (cells[1:], None)
    if file.isatty():
        _print_rich(headings, rows, total, title, file)
    else:
        file.write(plain_table(headings, rows, total=total, title=title))
    if left_out:
        where = "a wider terminal and --json have" if possible else "--json has"
        print(wrap(f"left out: {', '.join(left_out)} ({where} {'it' if len(left_out) == 1 else 'them'})"), file=file)


def plain_table(headings: Row, rows: Sequence[Row], *, total: Row | None = None, title: str = "") -> str:
    """The table as aligned text, within the columns of the terminal; no line ends in a blank."""
    names = [heading.removeprefix(">") for heading in headings]
    flush_right = _flush_right(headings)
    cells = [names, *rows, *([total] if total else [])]
    widths = _widths(cells, flush_right, columns() - len(GAP) * (len(names) - 1))
    lines = [title] if title else []
    for row in cells:
        folded = [_fold(cell, width) for cell, width in zip(row, widths, strict=True)]
        for parts in zip_longest(*folded, fillvalue=""):
            aligned = (p.rjust(w) if right else p.ljust(w) for p, w, right in zip(parts, widths, flush_right))
            lines.append(GAP.join(aligned).rstrip())
    return "\n".join(lines) + "\n"


def _in_line(cell: str) -> str:
    return printable(" ".join(cell.splitlines()))


def _flush_right(headings: Row) -> list[bool]:
    return [heading.startswith(">") for heading in headings]


def _word_widths(cells: Sequence[Row], flush_right: Sequence[bool], shortened: int | None = None) -> list[int]:
    """The narrowest widths that cut no word, or shorten words to `shortened`; columns of numbers are never cut."""
    widths = []
    for index, right in enumerate(flush_right):
        heading, *column = [row[index] for row in cells]
        words = [*heading.split(), *(column if right else [word for cell in column for word in cell.split()])]
        whole = (len(word) if right or shortened is None else len(shorten(word, shortened)) for word in words)
        widths.append(max(whole, default=0))
    return widths


def _fits(cells: Sequence[Row], flush_right: Sequence[bool], limit: int) -> bool:
    widths = _word_widths(cells, flush_right, READABLE_WIDTH)
    return sum(widths) + len(GAP) * (len(flush_right) - 1) <= limit


def _widths(cells: Sequence[Row], flush_right: Sequence[bool], limit: int) -> list[int]:
    """Widths of the columns: as wide as their cells; beyond `limit`, text is folded, then words are shortened."""
    widths = [max(len(row[i]) for row in cells) for i in range(len(flush_right))]
    for floor in (_word_widths(cells, flush_right, shortened) for shortened in (None, READABLE_WIDTH, MIN_WIDTH)):
        while sum(widths) > limit:
            wide = [i for i, width in enumerate(widths) if width > floor[i]]
            if not wide:
                break
            widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def _fold(cell: str, width: int) -> list[str]:
    """The lines of a cell in a column of `width`; longer words are shortened."""
    if len(cell) <= width:
        return [cell]
    text = " ".join(shorten(word, width) for word in cell.split())
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def shorten(word: str, width: int) -> str:
    """Shorten `word` to `width` columns by cutting its middle; numbers stay whole."""
    if len(word) <= width or NUMBER.fullmatch(word):
        return word
    kept = max(width - len(MARK), 2)
    return f"{word[: (kept + 1) // 2]}{MARK}{word[len(word) - kept // 2 :]}"


def _print_rich(headings: Row, rows: Sequence[Row], total: Row | None, title: str, file: TextIO) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    names = [heading.removeprefix(">") for heading in headings]
    cells = [names, *rows, *([total] if total else [])]
    widths = _widths(cells, _flush_right(headings), columns() - len(GAP) * (len(names) - 1))

    def text(cell: str, width: int) -> Text:  # Text does not interpret a '[' in a name as markup
        return Text("\n".join(_fold(cell, width)))

    table = Table(box=SIMPLE_HEAD, show_footer=bool(total), show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for index, (heading, width) in enumerate(zip(headings, widths)):
        table.add_column(
            text(names[index], width),
            footer=text(total[index], width) if total else "",
            justify="right" if heading.startswith(">") else "left",
            no_wrap=True,
            width=width,
        )
    for row in rows:
        table.add_row(*map(text, row, widths))
    console = Console(file=file, highlight=False, width=columns() + len(GAP))
    if title:
        console.print(Text(title, style="bold"))
    console.print(table)
