"""docs: lists the pages of the documentation, prints one, or finds the sections that have some words.

A wheel has the pages in layermem/pages, a clone in docs/.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from layermem.cli.parser import Verbs, add_verb
from layermem.errors import InputError
from layermem.utils.text import advice_for, wrap

EXAMPLE = """\
  layermem docs
  layermem docs training
  layermem docs --find best snapshot
"""
PACKAGE = Path(__file__).resolve().parents[1]
IN_WHEEL, IN_CLONE = PACKAGE / "pages", PACKAGE.parent / "docs"
FENCE = "```"


class Section(NamedTuple):
    heading: str
    text: str


def add_verbs(verbs: Verbs) -> None:
    parser = add_verb(verbs, "docs", "list the pages of the documentation, print one, or find words in them", EXAMPLE)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("page", metavar="PAGE", nargs="?", help="the page to print (default: list all)")
    what.add_argument("--find", metavar="WORD", nargs="+", help="list the sections that have all of these words")
    parser.set_defaults(run=run_docs)


def run_docs(arguments: argparse.Namespace) -> int:
    from layermem.report.tables import print_table

    pages = read_pages()
    if arguments.page:
        _show(_page(arguments.page, pages))
    elif arguments.find:
        rows = [[name, heading] for name, text in pages.items() for heading in _found(arguments.find, text)]
        if not rows:
            raise InputError(f"no section has {' and '.join(map(repr, arguments.find))}; give fewer or other words")
        print_table(["page", "section"], rows)
    else:
        print_table(["page", "title"], [[name, next(sections(text)).heading] for name, text in pages.items()])
        print(wrap("`layermem docs PAGE` prints one, `layermem docs --find WORD` lists the sections that have a word"))
    return 0


def read_pages() -> dict[str, str]:
    """The text of each page by its name, such as `ranks` or `benchmarks/ranks`; pages of a folder come last."""
    root = IN_WHEEL if IN_WHEEL.is_dir() else IN_CLONE
    paths = sorted(root.rglob("*.md"), key=lambda path: (len(path.parts), path))
    if not paths:
        raise InputError("this installation of layermem has no documentation; install its wheel again")
    return {path.relative_to(root).with_suffix("").as_posix(): path.read_text(encoding="utf-8") for path in paths}


def sections(text: str) -> Iterator[Section]:
    """The sections of a page, each with its heading; lines of blocks of code are no headings."""
    heading, lines, is_code = "", list[str](), False
    for line in text.splitlines():
        is_code ^= line.startswith(FENCE)
        if line.startswith("#") and not is_code:
            if lines:
                yield Section(heading, "\n".join(lines))
            heading, lines = line.lstrip("# "), []
        lines.append(line)
    yield Section(heading, "\n".join(lines))


def _page(name: str, pages: dict[str, str]) -> str:
    """The page of a name, which may also be written as the path of its file in a clone."""
    short = name.removeprefix("docs/").removesuffix(".md")
    if short not in pages:
        raise InputError(f"there is no page '{name}'; {advice_for(short, pages)}")
    return pages[short]


def _found(words: list[str], text: str) -> list[str]:
    return [each.heading for each in sections(text) if all(word.casefold() in each.text.casefold() for word in words)]


def _show(text: str) -> None:
    """Print a page, with the pager of PAGER where a terminal reads it."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        import pydoc

        pydoc.pager(text)
    else:
        print(text, end="")
