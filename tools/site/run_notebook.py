"""Runs a notebook from top to bottom, and writes it with its outputs.

    python tools/site/run_notebook.py docs/examples/three_budgets.ipynb [OUT.ipynb]

Without OUT the notebook itself is written.  It runs in its own folder, with the layermem of this repository.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]


def main(source: Path, target: Path) -> None:
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    os.environ.pop("MPLBACKEND", None)  # the kernel's own backend shows figures in the notebook
    notebook = nbformat.read(source, as_version=4)
    where = {"metadata": {"path": source.parent}}
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources=where).execute()
    for cell in notebook.cells:  # times of execution and data about the kernel change with every run
        cell.metadata.pop("execution", None)
    notebook.metadata.pop("language_info", None)
    nbformat.write(notebook, target)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[-1]))
