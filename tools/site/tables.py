"""Columns of numbers in the tables of a page: aligned at the right, and broken only before a bracket."""

from __future__ import annotations

import re
from itertools import zip_longest

TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)
CELL = re.compile(r"<(t[hd])([^>]*)>(.*?)</\1>", re.DOTALL)
TAG = re.compile(r"<[^>]*>")
UNIT = r"(?:%|x|s|ms|us|µs|B|[KMGT]iB|[kMGT]B|[KMGT]iB/s|GB/s|[kMGT]|bytes)"
AMOUNT = rf"[-+−~]?\d[\d.,]*(?:e[-+]?\d+)?(?: ?{UNIT})?(?![\w.])"
NUMBERS = re.compile(rf"(?:(?:&lt;|&gt;)=? ?)?{AMOUNT}(?: [+/] {AMOUNT})*(?: \({AMOUNT}\))?")
NOTHING = {"", "-", "–", "—"}


def align_numbers(html: str) -> str:
    """`html` with the columns at the right whose cells, below the heading, are numbers alone."""
    return TABLE.sub(lambda table: _aligned(table[0]), html)


def _aligned(table: str) -> str:
    rows = [[TAG.sub("", cell[3]).strip() for cell in CELL.finditer(row)] for row in ROW.findall(table)[1:]]
    columns = [[text or "" for text in column] for column in zip_longest(*rows)]
    numbers = {place for place, column in enumerate(columns) if _are_numbers(column)}
    return ROW.sub(lambda row: _row(row[0], numbers), table)


def _are_numbers(column: list[str]) -> bool:
    return any(text not in NOTHING for text in column) and all(
        text in NOTHING or NUMBERS.fullmatch(text) for text in column
    )


def _row(row: str, numbers: set[int]) -> str:
    places = iter(range(row.count("<t")))

    def cell(found: re.Match[str]) -> str:
        if next(places) not in numbers:
            return found[0]
        name, attributes, text = found.groups()
        if name == "td":
            text = " ".join(f'<span class="together">{part}</span>' for part in re.split(r" (?=\()", text))
        return f'<{name}{attributes} align="right">{text}</{name}>'

    return CELL.sub(cell, row)
