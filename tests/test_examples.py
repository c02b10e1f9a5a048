"""The examples of docs/examples run and print the output in docs/examples.md; the notebook's outputs come from a
run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.site.notebooks import joined

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "docs" / "examples"
PRINTED = {  # arguments, and what the output has; the others run as commands of the page (tests/test_guide.py)
    "equal_bits.py": (["3"], "weights are equal, bit by bit"),
    "own_strategy.py": ([], "largest-first: "),
}
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def run(*words: str | Path, folder: Path) -> str:
    ended = subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"},
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_every_script_is_run_and_described():
    page = (ROOT / "docs" / "examples.md").read_text()
    scripts = {file.name for file in EXAMPLES.glob("*.py")}
    assert set(re.findall(r"^\$ python docs/examples/(\w+\.py)", page, re.MULTILINE)) | set(PRINTED) == scripts
    assert all(f"(examples/{name})" in page for name in [*scripts, *(file.name for file in NOTEBOOKS)])


@pytest.mark.parametrize("name", PRINTED)
def test_a_script_runs_from_any_folder(name, tmp_path):
    arguments, shown = PRINTED[name]
    printed = run(EXAMPLES / name, *arguments, folder=tmp_path)
    assert shown in printed
    assert not list(tmp_path.iterdir())
    if name == "own_strategy.py":
        first, second = printed.splitlines()
        assert " 0 offloaded" in first and " 0 offloaded" not in second
        assert first.rpartition("loss ")[2] == second.rpartition("loss ")[2]


def texts(file: Path) -> list[list[str]]:
    """The text that each code cell printed, or the kinds of what it displayed."""
    cells = [cell for cell in json.loads(file.read_text())["cells"] if cell["cell_type"] == "code"]
    return [
        ["".join(output["text"]) if "text" in output else "picture" for output in joined(cell["outputs"])]
        for cell in cells
    ]


@pytest.mark.whole
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda file: file.name)
def test_a_notebook_prints_and_shows_what_is_stored_in_it(notebook, tmp_path):
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    run(ROOT / "tools/site/run_notebook.py", notebook, tmp_path / "out.ipynb", folder=tmp_path)
    stored = texts(notebook)
    assert any("picture" in cell for cell in stored) and texts(tmp_path / "out.ipynb") == stored
