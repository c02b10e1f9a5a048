"""The command, run inside this process: what it printed, and its exit code."""

import io
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from layermem.cli import main


@dataclass
class Ended:
    code: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """Standard error as one line; asserts that it was wrapped and nothing but one report of ours."""
        lines = self.err.splitlines()
        assert lines and lines[0].startswith("layermem: ") and all(line.startswith("  ") for line in lines[1:])
        assert all(len(line) <= 100 or " " not in line.removeprefix("layermem: ").strip() for line in lines)
        return " ".join(self.err.split())


@pytest.fixture
def layermem(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")

    def run(*words) -> Ended:
        capsys.readouterr()
        code = main([str(word) for word in words])
        return Ended(code, *capsys.readouterr())

    return run


@pytest.fixture
def terminal(monkeypatch):
    """Makes standard error a terminal, on which progress shows at once, and returns what it shows.

    A function for the test to call: pytest replaces standard error when fixtures are ready.
    """

    def show() -> io.StringIO:
        stream = io.StringIO()
        monkeypatch.setattr("layermem.utils.progress.DELAY_SECONDS", 0)
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
        monkeypatch.setattr(sys, "stderr", stream)
        return stream

    return show


@pytest.fixture
def prototxt(tmp_path):
    def write(text: str, name: str = "net.prototxt"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.fixture
def solver(tmp_path):
    """The digits solver with fields changed, saving below tmp_path."""

    def write(**fields):
        text = (
            Path("prototxt/digits/solver.prototxt")
            .read_text()
            .replace('"train_val.prototxt"', '"prototxt/digits/train_val.prototxt"')
        )
        for name, value in {"snapshot_prefix": f'"{tmp_path}/digits"', **fields}.items():
            text = re.sub(rf"(?m)^{name}:.*\n", "", text) + f"\n{name}: {value}"
        path = tmp_path / "solver.prototxt"
        path.write_text(text)
        return path

    return write
