"""Runs NVIDIA's compute-sanitizer on a few shapes of every kernel: memory, then races in shared memory."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from layermem.backends.cuda.kernel_images.toolkit import program
from tools.gpu import process
from tools.gpu.kept import read_rows
from tools.gpu.results import Options, Results, Row

CHECK = process.ROOT / "tools" / "gpu_check.py"
SLOWER = 4  # factor of a launch's time limit under a tool
END_SECONDS = 5  # in the last seconds of its time a process begins no case
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
UNABLE = re.compile(r"not supported|Unable to|no attachable process|Failed to (?:initialize|attach)", re.IGNORECASE)


def run(results: Results, options: Options) -> None:
    sanitizer = program("compute-sanitizer")
    if sanitizer is None:
        results.add(tool="compute-sanitizer", passed=None, says="not here")
        return
    for tool in TOOLS[: 1 if options.brief else None]:

        def work(tool: str = tool) -> None:
            results.add(tool=tool, **checked(sanitizer, tool, max(results.left, 15.0), options))

        results.attempt(work, most=round(max(results.left, 15.0)) + 15, tool=tool)


def checked(sanitizer: str, tool: str, seconds: float, options: Options) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        step = [str(CHECK), "--step", "correctness", "--brief", "--into", f"{folder}/rows.jsonl"]
        step += ["--seconds", str(seconds - END_SECONDS), "--patience", str(SLOWER * options.patience)]
        step += ["--results", str(options.call.results)]  # kernels in quarantine are not tried
        step += [word for folder in options.earlier for word in ("--earlier", str(folder))]
        log = Path(folder) / "log"
        code = process.run([sanitizer, "--tool", tool, sys.executable, *step], log, seconds)
        said = log.read_text(encoding="utf-8", errors="replace")
        cases = sum("error" in row for row in read_rows(Path(folder) / "rows.jsonl").values())
    return verdict(code, said, seconds) | {"cases": cases}


def verdict(code: int | None, said: str, seconds: float) -> Row:
    """The result column `passed`: whether the tool found nothing; None if it could not run."""
    found = re.search(r"(?:ERROR|RACECHECK) SUMMARY: .*", said)
    if code is None:
        return {"passed": None, "says": f"took longer than {seconds:.0f} s"}
    refused = UNABLE.search(said)
    if refused is not None or found is None:
        lines = [line for line in said.splitlines() if UNABLE.search(line)] or said.strip().splitlines()[-3:]
        return {"passed": None if refused else False, "says": " ".join(lines)[:300]}
    clean = re.search(r"SUMMARY: 0 (?:errors|hazards)", found[0]) is not None
    return {
        "passed": clean and code == 0,
        "says": found[0] if clean == (code == 0) else f"{found[0]}; ended with {code}",
    }
