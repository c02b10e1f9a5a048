"""Every tool prints --help, and writes nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = sorted(path for path in (ROOT / "tools").glob("*.py") if "__main__" in path.read_text())
WRITTEN = ("layermem", "docs", "prototxt", "tools")  # folders below which tools write


def file_times() -> dict[Path, int]:
    """The time of the last write of each file, except `__pycache__` and locks of databases, which other processes
    write."""
    files = (
        path
        for folder in WRITTEN
        for path in (ROOT / folder).rglob("*")
        if path.name != "lock.mdb" and "__pycache__" not in path.parts
    )
    return {path: path.stat().st_mtime_ns for path in files if path.is_file()}


# Runs each tool as a program, in a copy of one process that has imported what most of them import.
RUN_EACH = """
import contextlib, io, json, os, runpy, sys
import layermem.planning.strategies, layermem.solver.training

tools = json.loads(sys.stdin.readline())
for tool in tools:
    reads, writes = os.pipe()
    if os.fork() == 0:
        out, err, code = io.StringIO(), io.StringIO(), 0
        sys.path[0], sys.argv = os.path.dirname(tool), [tool, "--help"]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                runpy.run_path(tool, run_name="__main__")
            except SystemExit as ended:
                code = ended.code
        with open(writes, "w") as answer:
            json.dump([code, out.getvalue(), err.getvalue()], answer)
        os._exit(0)
    os.close(writes)
    with open(reads) as answer:
        print(answer.read() or "null")
    os.wait()
"""


def test_a_tool_answers_help_and_writes_nothing():
    before = file_times()
    given = json.dumps([str(tool) for tool in TOOLS])
    ended = subprocess.run([sys.executable, "-c", RUN_EACH], input=given, cwd=ROOT, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    for tool, answer in zip(TOOLS, ended.stdout.splitlines(), strict=True):
        assert answer != "null", f"{tool.name} ended with an exception"
        code, out, err = json.loads(answer)
        assert (code or 0, err) == (0, "") and out.startswith(f"usage: {tool.name} "), (tool.name, out, err)
    assert file_times() == before


@pytest.mark.parametrize("tool", ["make_descriptor.py", "native_stub.py"])
def test_a_tool_refuses_words_that_it_does_not_know(tool):
    before = file_times()
    ended = subprocess.run([sys.executable, f"tools/{tool}", "--chekc"], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 2 and "--chekc" in ended.stderr and file_times() == before
