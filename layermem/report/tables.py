"""Tables: drawn by rich on a terminal, plain aligned text in a pipe or file.

    print_table(["net", ">peak"], [["lenet", "1.20 MiB"]], total=["sum", "1.20 MiB"])

A heading that starts with ">" is a column of numbers, flush right.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

GAP = "  "  # between the columns of plain text

Row = Sequence[str]


def print_table(
    headings: Row, rows: Sequence[Row], *, total: Row | None = None, title: str = "", file: TextIO | None = None
) -> None:
    """Write the rows under their headings to `file` (standard output), with `total` as a last row set apart."""
    file = file or sys.stdout
    if file.isatty():
        _print_rich(headings, rows, total, title, file)
    else:
        file.write(plain_table(headings, rows, total=total, title=title))


def plain_table(headings: Row, rows: Sequence[Row], *, total: Row | None = None, title: str = "") -> str:
    """The table as aligned text; no line ends in a blank."""
    names = [heading.removeprefix(">") for heading in headings]
    cells = [names, *rows, *([total] if total else [])]
    widths = [max(len(row[i]) for row in cells) for i in range(len(names))]
    right = [heading.startswith(">") for heading in headings]
    lines = [title] if title else []
    for row in cells:
        padded = (c.rjust(w) if flush else c.ljust(w) for c, w, flush in zip(row, widths, right, strict=True))
        lines.append(GAP.join(padded).rstrip())
    return "\n".join(lines) + "\n"


def _print_rich(headings: Row, rows: Sequence[Row], total: Row | None, title: str, file: TextIO) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=title or None, title_justify="left", title_style="bold", box=SIMPLE_HEAD, show_footer=bool(total)
    )
    for index, heading in enumerate(headings):
        table.add_column(
            heading.removeprefix(">"),
            footer=total[index] if total else "",
            justify="right" if heading.startswith(">") else "left",
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # Text: a '[' in a name is no markup
    Console(file=file, highlight=False).print(table)
