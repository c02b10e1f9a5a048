"""Columns of numbers in tables of the site are at the right, and no number breaks in two."""

from __future__ import annotations

import re

import pytest

from tools.site.tables import align_numbers


def table(*cells: str) -> str:
    rows = "".join(f"<tr>\n<td>x</td>\n<td>{cell}</td>\n</tr>" for cell in cells)
    return f"<table>\n<thead><tr>\n<th>net</th>\n<th>MiB</th>\n</tr></thead>\n<tbody>{rows}</tbody>\n</table>"


@pytest.mark.parametrize(
    "cell",
    ["8,260 (-47.2 %)", "-88.6 %", "576 + 8,199 (-96.3 %)", "1.00 GiB", "0.45", "+3 %", "&lt;= 2 s", "<code>7</code>",
     "12x", "<strong>9</strong> ms", "1.5e-07", "2 / 3"],
)  # fmt: skip
def test_numbers_are_at_the_right_with_their_heading(cell):
    html = align_numbers(table(cell, "-", ""))
    assert html.count('align="right"') == 4 and html.count("<th>net</th>") == 1
    assert re.sub(r' align="right"|</?span[^>]*>', "", html) == table(cell, "-", "")
    assert all(
        " (" not in part and "(" not in part[1:] for part in re.findall(r'<span class="together">(.*?)</span>', html)
    )


@pytest.mark.parametrize(
    "cells", [("8", "none"), ("ResNet-50",), ("4 layers",), ("-", ""), ("2026-11-22",), ("1.2.3 of x",)]
)
def test_a_column_with_words_stays_as_it_is(cells):
    assert align_numbers(table(*cells)) == table(*cells)


def test_other_tables_and_text_stay_as_they_are():
    html = '<p>1</p><table class="grid"><tr><td>1</td></tr></table>'
    assert align_numbers(html) == html
