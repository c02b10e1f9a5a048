"""NVIDIA's compute-sanitizer over a few shapes of every kernel: memory, then races in shared memory."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.gpu.results import Options, Results

CHECK = Path(__file__).resolve().parents[1] / "gpu_check.py"
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")


def run(results: Results, options: Options) -> None:
    program = shutil.which("compute-sanitizer")
    if program is None:
        results.add(tool="compute-sanitizer", passed=None, says="not here")
        return
    for tool in TOOLS[: 1 if options.brief else None]:
        if results.late:
            results.add(tool=tool, passed=None, says="was not begun in time")
            continue
        with tempfile.TemporaryDirectory() as folder:
            step = [str(CHECK), "--step", "correctness", "--brief", "--into", f"{folder}/rows.json"]
            done = subprocess.run([program, "--tool", tool, sys.executable, *step], capture_output=True, text=True)
        found = re.search(r"(?:ERROR|RACECHECK) SUMMARY: .*", done.stdout + done.stderr)
        says = found[0] if found else (done.stdout + done.stderr).strip()[-300:]
        clean = found is not None and re.search(r"SUMMARY: 0 (?:errors|hazards)", says) is not None
        results.add(tool=tool, passed=clean and done.returncode == 0, says=says)
