"""Every tool that can be run answers --help, and writes nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = sorted(path for path in (ROOT / "tools").glob("*.py") if "__main__" in path.read_text())
WRITTEN = ("layermem", "docs", "prototxt", "tools")  # folders below which tools write


def file_times() -> dict[Path, int]:
    """When each file was written last; other processes write `__pycache__` and locks of databases."""
    files = (
        path
        for folder in WRITTEN
        for path in (ROOT / folder).rglob("*")
        if path.name != "lock.mdb" and "__pycache__" not in path.parts
    )
    return {path: path.stat().st_mtime_ns for path in files if path.is_file()}


@pytest.mark.parametrize("tool", TOOLS, ids=lambda path: path.name)
def test_a_tool_answers_help_and_writes_nothing(tool):
    before = file_times()
    ended = subprocess.run([sys.executable, str(tool), "--help"], cwd=ROOT, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "") and ended.stdout.startswith(f"usage: {tool.name} ")
    assert file_times() == before


@pytest.mark.parametrize("tool", ["make_descriptor.py", "native_stub.py"])
def test_a_tool_refuses_words_that_it_does_not_know(tool):
    before = file_times()
    ended = subprocess.run([sys.executable, f"tools/{tool}", "--chekc"], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 2 and "--chekc" in ended.stderr and file_times() == before
