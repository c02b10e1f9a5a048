"""The guide works as written: the commands of each page run from top to bottom, in a separate folder.

```console        "$ COMMAND" runs; the lines below it are its output, with "..." for any text or any lines; without
                  such lines its output is not compared.  A line that ends in a backslash continues.
                  A command ends with exit code 0, unless `echo $?` follows, which prints it.
```LANGUAGE title="FILE"     FILE is written before the commands that follow
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from layermem.cli.main import main
from tests.test_docs import Block, blocks_of

ROOT = Path(__file__).parent.parent
SHELL = re.compile(r"[|<>&;$*]")  # a command with one of these needs a shell
TITLE = re.compile(r'^\w+ title="([\w./-]+)"$')
FOLDERS = ("prototxt", "docs")  # of the repository, which every page may name


class Command(NamedTuple):
    line: int
    text: str
    shown: str


def commands(block: Block) -> Iterator[Command]:
    """The commands of a console block, each with the output that is shown."""
    text = block.text.replace("\\\n", "")
    for each in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
        yield Command(block.line + 1 + text.count("\n", 0, each.start()), each[1], each[2])


def is_part(block: Block) -> bool:
    return block.language == "console" or TITLE.match(block.language) is not None


PAGES = [
    page
    for page in sorted((ROOT / "docs").rglob("*.md"))
    if any(each.language == "console" for each in blocks_of(page))
]


class Shell:
    """Runs commands one after the other: `layermem` in this process, all others in a shell."""

    def __init__(self) -> None:
        self.code = 0

    def run(self, command: str) -> str:
        if command == "echo $?":
            return f"{self.code}\n"
        words = shlex.split(command.replace("\\\n", " "))
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            self.code = self._run(command, words)
        return printed.getvalue()

    def _run(self, command: str, words: list[str]) -> int:
        if words[0] == "cd":
            os.chdir(words[1])
        elif words[0] == "layermem" and not SHELL.search(command):
            return main(words[1:])
        else:
            bin_folder = Path(sys.executable).parent
            path = os.pathsep.join((str(bin_folder), os.environ["PATH"]))
            ended = subprocess.run(
                ["sh", "-c", command],
                capture_output=True,
                text=True,
                env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
            )
            print(ended.stdout + ended.stderr, end="")
            return ended.returncode
        return 0


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in FOLDERS:
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("MPLBACKEND", "agg")
    return tmp_path


def run_page(page: Path, folder: Path) -> int:
    """The number of commands run."""
    shell, count, pending = Shell(), 0, ""
    for block in filter(is_part, blocks_of(page)):
        title = TITLE.match(block.language)
        if title:
            file = folder / title[1]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text)
            continue
        for command in commands(block):
            if command.text != "echo $?":
                assert shell.code == 0, f"exit code {shell.code}: {pending}"
            printed, count = shell.run(command.text), count + 1
            pending = f"{page.name}:{command.line}: $ {command.text}\n{printed}"
            if command.text == "echo $?":
                shell.code = 0
            same = doctest.OutputChecker().check_output(command.shown, printed, doctest.ELLIPSIS)
            assert not command.shown or same, pending
    assert shell.code == 0, pending
    return count


@pytest.mark.samples(6)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_the_commands_of_a_page_print_what_it_shows(page, folder):
    assert run_page(page, folder)


def written(folder: Path, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(text)
    return page


@pytest.mark.parametrize(
    "block", ["$ layermem show --net missing\n", "$ echo a\nb\n", "$ false\n", "$ false\n$ echo $?\n0\n"]
)
def test_a_page_that_is_wrong_fails(folder, block):
    with pytest.raises(AssertionError, match=r"page\.md"):
        run_page(written(folder, f"```console\n{block}```\n"), folder)


def test_files_are_written_and_exit_codes_are_shown(folder):
    text = '```text title="a/b.txt"\nhello\n```\n\n```console\n$ cat a/b.txt\nhello\n$ cat missing\n$ echo $?\n1\n```\n'
    assert run_page(written(folder, text), folder) == 3


def test_a_block_that_is_not_of_the_guide_is_no_block_of_the_guide():
    assert not is_part(Block(Path("x.md"), 1, "", "$ layermem"))
    assert not is_part(Block(Path("x.md"), 1, "python docs/x.py", ""))
