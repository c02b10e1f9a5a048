"""`layermem docs`: the pages of the documentation, without the folder docs/."""

import io
import re
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from layermem.cli import docs

ROOT = Path(__file__).resolve().parents[2]
PAGES = {path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in ROOT.glob("docs/**/*.md")}


def test_every_page_is_listed_with_its_title(layermem):
    rows = layermem("docs").out.splitlines()[1:-1]
    assert {row.split()[0] for row in rows} == PAGES
    assert all(len(row.split()) > 1 for row in rows)


@pytest.mark.parametrize("name", ["ranks", "ranks.md", "docs/ranks.md"])
def test_a_page_is_printed_as_it_is(layermem, name):
    assert layermem("docs", name).out == (ROOT / "docs/ranks.md").read_text()


def test_an_unknown_page_is_answered_with_the_nearest_one(layermem):
    ended = layermem("docs", "rank")
    assert ended.code == 2 and "there is no page 'rank'; did you mean ranks?" in " ".join(ended.err.split())


def test_words_are_found_by_section_in_any_case(layermem):
    assert "arrays  Train from arrays" in layermem("docs", "--find", "SOLVER.GIVE", "npz").out
    assert layermem("docs", "--find", "pages", "zebra").code == 2


def test_a_comment_in_a_block_of_code_is_no_heading():
    text = "# Title\n```\n# comment\n```\n## Part\nend\n"
    assert [each.heading for each in docs.sections(text)] == ["Title", "Part"]


def test_a_terminal_gets_a_pager(layermem, monkeypatch):
    shown = []
    monkeypatch.setattr("pydoc.pager", shown.append)
    for name in ("stdin", "stdout"):
        monkeypatch.setattr(sys, name, io.StringIO())
        monkeypatch.setattr(getattr(sys, name), "isatty", lambda: True)
    assert docs.run_docs(Namespace(page="ranks", find=None)) == 0
    assert shown == [(ROOT / "docs/ranks.md").read_text()]


def test_an_installation_has_its_own_copy(layermem, monkeypatch, tmp_path):
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "ranks.md").write_text("# Here\n")
    monkeypatch.setattr(docs, "IN_WHEEL", tmp_path / "pages")
    assert layermem("docs", "ranks").out == "# Here\n"
    (tmp_path / "pages" / "ranks.md").unlink()
    assert "has no documentation" in layermem("docs").err


def test_messages_and_docstrings_name_pages_by_the_command_that_prints_them():
    for path in (ROOT / "layermem").rglob("*.py"):
        text = path.read_text()
        assert not re.search(r"\bdocs/\w[\w/]*\.md\b", text), path
        named = set(re.findall(r"layermem docs ([a-z_/]+)", text))
        assert path.name == "docs.py" or named <= PAGES, path
